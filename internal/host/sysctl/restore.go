package sysctl

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Restored is what became of one setting of a record.
type Restored struct {
	// Change goes from the value that was set to the one that was found before.
	Change
	// Kept is the present value of a setting that is neither, so that somebody else
	// has changed it since. It was left alone. Empty for one that was put back.
	Kept string
}

// Restore puts back what the record says, and ends the record. It changes only what
// still has the value that was set, and says nothing of what is back already or no
// longer there. What cannot be put back is in the error and stays in the record for
// another try; the rest is put back all the same.
func (f Files) Restore() ([]Restored, error) {
	if f.Record == nil {
		return nil, nil
	}
	all, err := f.Record.load()
	if err != nil || len(all) == 0 {
		return nil, err
	}
	var done []Restored
	var failed []error
	for _, path := range slices.Sorted(maps.Keys(all)) {
		restored, told, err := f.restore(path, all[path])
		if err != nil {
			failed = append(failed, err)
			continue
		}
		if told {
			done = append(done, restored)
		}
		delete(all, path)
	}
	return done, errors.Join(append(failed, f.Record.save(all))...)
}

// restore puts one setting back; told is whether there is something to say.
func (f Files) restore(path string, was former) (restored Restored, told bool, err error) {
	if !isSetting(path) {
		return Restored{}, false, fmt.Errorf("the record of kernel settings %s names %q, which is none; delete it there", f.Record.file(), path)
	}
	e := entry{path: path, advice: "run privileged, in the network namespace of the proxy"}
	now, err := f.read(e)
	switch {
	case errors.Is(err, fs.ErrNotExist): // its kernel module is gone
		return Restored{}, false, nil
	case err != nil:
		return Restored{}, false, e.failure("read", "", err)
	case now == was.Found:
		return Restored{}, false, nil
	}
	restored = Restored{Change: Change{Name: e.name(), From: was.Set, To: was.Found}}
	if now != was.Set {
		restored.Kept = now
		return restored, true, nil
	}
	if err := os.WriteFile(f.at(e), []byte(was.Found), 0); err != nil {
		return Restored{}, false, e.failure("set", " back to "+was.Found, err)
	}
	return restored, true, nil
}

// isSetting tells whether a path is where settings of the kernel are. A clean-up
// runs with all privileges, and writes to no other file, whatever a record says.
func isSetting(path string) bool {
	return path == filepath.Clean(path) && (strings.HasPrefix(path, procSys) || strings.HasPrefix(path, "sys/module/"))
}

// SPDX-License-Identifier: Apache-2.0

package sysctl

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
)

// recordFile is the name of a record in its directory.
const recordFile = "sysctls.json"

// Record records in a file what each setting was before this program first changed it, so that a cleanup by another
// process can restore it. Like the settings, its directory should not survive a reboot. A setting that cannot be
// recorded is set nevertheless.
//
// There is one record per directory, with settings by path, for all network namespaces: proxies in several namespaces
// need a directory each, and the cleanup has to run in the namespace of the proxy. Nil records nothing.
type Record struct {
	dir string
	// warn is called with the first reason why something could not be recorded.
	warn   func(error)
	warned sync.Once
}

// former is the record of one setting: Found differs from Set.
type former struct {
	// Found is the value before the first change, whichever process made it.
	Found string `json:"found"`
	// Set is the value after the last change.
	Set string `json:"set"`
}

// formers are by path, relative to the root.
type formers map[string]former

// NewRecord returns the record in a directory, which is created when needed; its parent has
// to exist. Warn is called at most once.
func NewRecord(dir string, warn func(error)) *Record {
	return &Record{dir: dir, warn: warn}
}

func (r *Record) file() string { return filepath.Join(r.dir, recordFile) }

// remember records that a setting goes from one value to another. The first value found
// stays; a setting that returns to it is forgotten.
func (r *Record) remember(path, from, to string) {
	if r == nil {
		return
	}
	all, err := r.load()
	if err == nil {
		found := from
		if first, known := all[path]; known {
			found = first.Found
		}
		if all[path] = (former{Found: found, Set: to}); found == to {
			delete(all, path)
		}
		err = r.save(all)
	}
	if err != nil {
		r.warned.Do(func() { r.warn(err) })
	}
}

// load reads the record, which is empty without a file.
func (r *Record) load() (formers, error) {
	all := formers{}
	text, err := os.ReadFile(r.file())
	if errors.Is(err, fs.ErrNotExist) {
		return all, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the sysctl record %s: %w; delete it if it is damaged", r.file(), err)
	}
	if all == nil { // the text is "null"
		all = formers{}
	}
	return all, nil
}

// save writes the record atomically. An empty record has no file.
func (r *Record) save(all formers) error {
	err := r.replace(all)
	if err != nil {
		return fmt.Errorf("cannot write the sysctl record %s: %w", r.file(), err)
	}
	return nil
}

func (r *Record) replace(all formers) error {
	if len(all) == 0 {
		if err := os.Remove(r.file()); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	if err := os.Mkdir(r.dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	text, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return err
	}
	next, err := os.CreateTemp(r.dir, "."+recordFile+"-") // of mode 0600
	if err != nil {
		return err
	}
	_, err = next.Write(append(text, '\n'))
	// The directory may belong to a proxy that does not run as root; root then sets the values that this proxy cannot set.
	if owner, ok := ownerOf(r.dir); ok && os.Geteuid() == 0 {
		_ = next.Chown(int(owner.Uid), int(owner.Gid)) // needs CAP_CHOWN; the record matters more than its owner
	}
	if err = errors.Join(err, next.Close()); err == nil {
		err = os.Rename(next.Name(), r.file())
	}
	if err != nil {
		return errors.Join(err, os.Remove(next.Name()))
	}
	return nil
}

func ownerOf(dir string) (*syscall.Stat_t, bool) {
	info, err := os.Stat(dir)
	if err != nil {
		return nil, false
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	return owner, ok
}

// Restored is the outcome for one setting of a record.
type Restored struct {
	// Change is from the value that was set to the one found before.
	Change
	// Kept is the current value of a setting that another program has changed since,
	// and which therefore stays. Empty if it was restored.
	Kept string
}

// Restore restores settings of the record, and removes them from it: some sysctls, named by their paths
// below /proc/sys, or everything if none is named. It changes only those that still have the value that
// was set, and does not return those that need no change or no longer exist. A setting that cannot be
// restored is in the error and stays in the record; the others are restored nevertheless.
func (f Files) Restore(sysctls ...string) ([]Restored, error) {
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
		if name, _ := strings.CutPrefix(path, procSys); len(sysctls) > 0 && !slices.Contains(sysctls, name) {
			continue
		}
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
	if f.Planning() {
		return done, errors.Join(failed...)
	}
	return done, errors.Join(append(failed, f.Record.save(all))...)
}

// restore restores one setting; told says whether Restore returns it.
func (f Files) restore(path string, was former) (restored Restored, told bool, err error) {
	if !isSetting(path) {
		return Restored{}, false, fmt.Errorf("sysctl record %s contains an invalid entry %q; remove the entry", f.Record.file(), path)
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
	if f.Planning() {
		return restored, true, nil
	}
	if err := os.WriteFile(f.at(e), []byte(was.Found), 0); err != nil {
		return Restored{}, false, e.failure("set", " back to "+was.Found, err)
	}
	return restored, true, nil
}

// isSetting reports whether a path is that of a kernel setting. A cleanup has full privileges, and must write no other
// file, regardless of the record.
func isSetting(path string) bool {
	return path == filepath.Clean(path) && (strings.HasPrefix(path, procSys) || strings.HasPrefix(path, "sys/module/"))
}

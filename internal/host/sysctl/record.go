package sysctl

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
)

// recordFile is the name of a record in its directory.
const recordFile = "sysctls.json"

// Record remembers in a file what each setting was before it was first set here,
// so that a later clean-up, which is another process, can put it back. It belongs
// in a directory that is forgotten at a reboot, as settings are. A setting that
// cannot be recorded is set all the same.
//
// There is one record per directory, and settings of a network namespace are in it
// by their paths alone: proxies in several namespaces need a directory each, and
// the clean-up runs where the proxy ran. Nil records nothing.
type Record struct {
	dir string
	// warn is told the first reason why something could not be recorded.
	warn   func(error)
	warned sync.Once
}

// former is what a record says about one setting: Found differs from Set.
type former struct {
	// Found is the value from before the first change, whichever process made it.
	Found string `json:"found"`
	// Set is the value that the last change left.
	Set string `json:"set"`
}

// formers are by path, relative to the root.
type formers map[string]former

// NewRecord gives the record in a directory, which is made when there is something
// to write down; the one above it has to be there. Warn is called at most once.
func NewRecord(dir string, warn func(error)) *Record {
	return &Record{dir: dir, warn: warn}
}

func (r *Record) file() string { return filepath.Join(r.dir, recordFile) }

// remember notes that a setting goes from one value to another. What was found the
// first time stays; a setting that is back at that is forgotten.
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

// load reads the record; without a file it is empty.
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
		return nil, fmt.Errorf("cannot read the record of kernel settings %s: %w; when it is of no use, delete it", r.file(), err)
	}
	if all == nil { // the text is "null"
		all = formers{}
	}
	return all, nil
}

// save writes the record so that a reader finds the old one or the new one, whole.
// An empty record is no file.
func (r *Record) save(all formers) error {
	err := r.replace(all)
	if err != nil {
		return fmt.Errorf("cannot write the record of kernel settings %s: %w", r.file(), err)
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
	if err = errors.Join(err, next.Close()); err == nil {
		err = os.Rename(next.Name(), r.file())
	}
	if err != nil {
		return errors.Join(err, os.Remove(next.Name()))
	}
	return nil
}

package sysctl

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Files are the kernel's files below a folder. The zero value is the machine's own.
//
// /proc/sys/net shows each thread its own network namespace.
type Files struct {
	// Root is the folder; empty for "/". Tests put their own in.
	Root string
	// Record remembers what settings were before; nil does not.
	Record *Record
}

// Change is one value that was written.
type Change struct {
	// Name is a sysctl's, with dots, or a file's.
	Name     string
	From, To string
}

// entry is one file that holds one value.
type entry struct {
	// path is relative to the root.
	path string
	// advice says what to do when the value cannot be set.
	advice string
}

// procSys is where sysctls are.
const procSys = "proc/sys/"

// name is what people call the entry: "net.netfilter.nf_conntrack_max" for a file of
// /proc/sys, and the file's name otherwise.
func (e entry) name() string {
	if name, ok := strings.CutPrefix(e.path, procSys); ok {
		return strings.ReplaceAll(name, "/", ".")
	}
	return "/" + e.path
}

func (f Files) at(e entry) string {
	return filepath.Join("/", f.Root, e.path)
}

func (f Files) read(e entry) (string, error) {
	text, err := os.ReadFile(f.at(e))
	return strings.TrimSpace(string(text)), err
}

// Read gives the value of a sysctl, named by its path below /proc/sys.
func (f Files) Read(path string) (string, error) {
	e := entry{path: procSys + path}
	value, err := f.read(e)
	if err != nil {
		return "", fmt.Errorf("read sysctl %s: %w", e.name(), err)
	}
	return value, nil
}

// Ensure sets a sysctl, named by its path below /proc/sys, unless it has the value,
// so that a node where somebody has set it works with a read-only /proc/sys. It
// tells whether it did. The error ends with the advice.
func (f Files) Ensure(path, value, advice string) (changed bool, err error) {
	_, changed, err = f.ensure(entry{procSys + path, advice}, value)
	return changed, err
}

// ensure writes a value unless it is there already, and says whether it has.
func (f Files) ensure(e entry, value string) (Change, bool, error) {
	now, err := f.read(e)
	if err == nil && now == value {
		return Change{}, false, nil
	}
	if err == nil {
		err = f.write(e, now, value)
	}
	if err != nil {
		return Change{}, false, e.failure("set", " to "+value, err)
	}
	return Change{Name: e.name(), From: now, To: value}, true, nil
}

// write changes a value, after it is recorded: whoever is killed in between leaves a
// record that changes nothing.
func (f Files) write(e entry, from, to string) error {
	f.Record.remember(e.path, from, to)
	err := os.WriteFile(f.at(e), []byte(to), 0)
	// The kernel may have refused it, or rounded it, as it does with the hash table.
	if now, readErr := f.read(e); readErr == nil && now != to {
		f.Record.remember(e.path, from, now)
	}
	return err
}

// number reads a value that is one.
func (f Files) number(e entry) (int, error) {
	text, err := f.read(e)
	if err == nil {
		var number int
		if number, err = strconv.Atoi(text); err == nil {
			return number, nil
		}
	}
	return 0, e.failure("read", "", err)
}

// failure names what could not be done, why, and what to do.
func (e entry) failure(verb, value string, err error) error {
	text := fmt.Sprintf("cannot %s %s%s", verb, e.name(), value)
	advice := e.advice
	if errors.Is(err, fs.ErrNotExist) && strings.Contains(e.path, "nf_conntrack") {
		advice = "load the kernel module nf_conntrack, or " + advice
	}
	return fmt.Errorf("%s: %w; %s", text, err, advice)
}

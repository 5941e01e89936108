// SPDX-License-Identifier: Apache-2.0

// Package sysctl sets the kernel settings that a node service proxy needs: the size of the conntrack table, its
// timeouts, the process's OOM score, and the sysctls of a mode. Package daemon and the backends call it.
//
// It does not write a value that is already right, so that a process with fewer privileges can follow one that has set
// everything (--init-only). It records what it writes, so that a cleanup can restore the previous values.
package sysctl

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Files are the kernel's files below a directory. The zero value is the machine's own, where
// /proc/sys/net shows each thread its own network namespace.
type Files struct {
	// Root is the directory; empty for "/". Tests use their own.
	Root string
	// Record records previous values; nil records nothing.
	Record *Record
	// Plan, if set, receives each change instead of the kernel. If this process may not write a file, the change contains
	// that problem; a missing file is still an error.
	Plan func(Change)
}

// Planning reports whether changes are only announced.
func (f Files) Planning() bool { return f.Plan != nil }

// Optional returns files that mark their planned changes as optional.
func (f Files) Optional() Files {
	if plan := f.Plan; plan != nil {
		f.Plan = func(c Change) {
			c.Optional = true
			plan(c)
		}
	}
	return f
}

// Change is one value that was written or is planned.
type Change struct {
	// Name is the name of a sysctl, with dots, or of a file.
	Name string `json:"name"`
	From string `json:"from"`
	To   string `json:"to"`
	// Problem says why a planned change would fail in this process, and Advice what to do then; empty if
	// it would not.
	Problem string `json:"problem,omitempty"`
	Advice  string `json:"-"`
	// Optional means that the proxy serves without the change.
	Optional bool `json:"-"`
}

// entry is one file that holds one value.
type entry struct {
	// path is relative to the root.
	path string
	// advice says what to do if the value cannot be set.
	advice string
}

// procSys is where sysctls are.
const procSys = "proc/sys/"

// name returns the usual name: "net.netfilter.nf_conntrack_max" for a file of /proc/sys, and
// otherwise the file's name.
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

// Read returns the value of a sysctl, named by its path below /proc/sys.
func (f Files) Read(path string) (string, error) {
	e := entry{path: procSys + path}
	value, err := f.read(e)
	if err != nil {
		return "", fmt.Errorf("read sysctl %s: %w", e.name(), err)
	}
	return value, nil
}

// Ensure sets a sysctl, named by its path below /proc/sys, and reports whether it did. If it
// has the value already, /proc/sys may be read-only. The error ends with the advice.
func (f Files) Ensure(path, value, advice string) (changed bool, err error) {
	_, changed, err = f.ensure(entry{procSys + path, advice}, value)
	return changed, err
}

// ensure writes a value unless it is there already, and reports whether it did.
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

// plan announces a change, and says whether this process may make it.
func (f Files) plan(e entry, c Change) error {
	file, err := os.OpenFile(f.at(e), os.O_WRONLY, 0)
	switch {
	case err == nil:
		err = file.Close()
	case errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.EROFS):
		c.Problem, c.Advice = cause(err).Error(), e.advice
		err = nil
	}
	if err == nil {
		f.Plan(c)
	}
	return err
}

// cause returns the system's error without the path.
func cause(err error) error {
	if at, ok := errors.AsType[*fs.PathError](err); ok {
		return at.Err
	}
	return err
}

// write records a value, then changes it. A process that is killed in between leaves a
// record that has no effect.
func (f Files) write(e entry, from, to string) error {
	if f.Planning() {
		return f.plan(e, Change{Name: e.name(), From: from, To: to})
	}
	f.Record.remember(e.path, from, to)
	err := os.WriteFile(f.at(e), []byte(to), 0)
	// The kernel may have rejected or rounded it, as with the hash table.
	if now, readErr := f.read(e); readErr == nil && now != to {
		f.Record.remember(e.path, from, now)
	}
	return err
}

// number reads a number.
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

// failure returns an error that says what failed, why, and what to do.
func (e entry) failure(verb, value string, err error) error {
	text := fmt.Sprintf("cannot %s %s%s", verb, e.name(), value)
	advice := e.advice
	if errors.Is(err, fs.ErrNotExist) && strings.Contains(e.path, "nf_conntrack") {
		advice = "load the kernel module nf_conntrack, or " + advice
	}
	return &Error{fmt.Errorf("%s: %w", text, err), advice}
}

// Error is a setting that cannot be read or set, with what to do about it.
type Error struct {
	Err error
	Do  string
}

// Error returns the error and the advice.
func (e *Error) Error() string { return e.Err.Error() + "; " + e.Do }

// Unwrap returns the error.
func (e *Error) Unwrap() error { return e.Err }

// AdjustOOMScore sets the OOM score adjustment of this process (-1000 to 1000); it tries twice. The proxy works without
// it. It needs no record, because it ends with the process.
func (f Files) AdjustOOMScore(score int) error {
	own := entry{"proc/self/oom_score_adj",
		"lowering it needs CAP_SYS_RESOURCE; otherwise the process is killed like any other (oomScoreAdj, --oom-score-adj)"}
	f.Record = nil
	_, _, err := f.ensure(own, strconv.Itoa(score))
	if err != nil {
		_, _, err = f.ensure(own, strconv.Itoa(score))
	}
	return err
}

// CPUs returns the number of logical CPUs that are online, whether or not this process may
// use them. If sysfs does not say, it returns the number that it may use.
func (f Files) CPUs() int {
	// A CPU that is offline has no topology. One that cannot go offline has no file
	// "online".
	found, _ := filepath.Glob(filepath.Join("/", f.Root, "sys/devices/system/cpu/cpu[0-9]*/topology"))
	count := 0
	for _, topology := range found {
		online, err := os.ReadFile(filepath.Join(filepath.Dir(topology), "online"))
		if errors.Is(err, os.ErrNotExist) || err == nil && len(online) > 0 && online[0] == '1' {
			count++
		}
	}
	if count == 0 {
		return runtime.NumCPU()
	}
	return count
}

// NoIPv6Error says that the network namespace has no IPv6, until the administrator changes the node.
type NoIPv6Error struct {
	What string
	// Need says what would help.
	Need string
}

// Error says what is missing and what would help.
func (e *NoIPv6Error) Error() string { return fmt.Sprintf("%s; needed: %s", e.What, e.Need) }

// IPv6 returns a *NoIPv6Error if the network namespace has no IPv6 at all. An address is
// proof that it has; the sysctl alone proves nothing, because interfaces may differ.
func (f Files) IPv6() error {
	// /proc/net shows what the main thread sees.
	addresses, err := f.read(entry{path: "proc/thread-self/net/if_inet6"})
	if err != nil {
		return &NoIPv6Error{"the kernel has no IPv6", "a kernel with IPv6, started without ipv6.disable=1"}
	}
	disabled, err := f.Read("net/ipv6/conf/all/disable_ipv6")
	if err == nil && disabled == "1" && addresses == "" {
		return &NoIPv6Error{"IPv6 is switched off on all interfaces", "sysctl net.ipv6.conf.all.disable_ipv6=0"}
	}
	return nil // an unreadable sysctl proves nothing
}

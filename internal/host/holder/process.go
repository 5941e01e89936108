// SPDX-License-Identifier: Apache-2.0

// Package holder finds the process that holds a port of this host, so that an error about listening can name that
// process and the operator need not search. It also describes processes.
//
// It looks at the network namespace of the calling thread, and at the processes of its own
// PID namespace. Nothing here changes anything on the host.
package holder

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Process is a process, as far as this one can see it.
type Process struct {
	// PID is 0 for a process of another PID namespace: a container sees only its own
	// processes.
	PID int
	// Command is the command line; empty if it cannot be read.
	Command string
}

// commandMax bounds the length of a reported command line, in bytes.
const commandMax = 300

// String describes the process in one line.
func (p Process) String() string {
	switch {
	case p.PID == os.Getpid():
		return fmt.Sprintf("this process (pid %d)", p.PID)
	case p.PID == 0 && p.Command == "":
		return "a process that cannot be seen from here"
	case p.PID == 0:
		return fmt.Sprintf("a process of another PID namespace (%s)", p.Command)
	case p.Command == "":
		return fmt.Sprintf("pid %d", p.PID)
	default:
		return fmt.Sprintf("pid %d (%s)", p.PID, p.Command)
	}
}

// ProcessOf returns a process as /proc shows it.
func ProcessOf(pid int) Process {
	if pid <= 0 {
		return Process{}
	}
	return Process{PID: pid, Command: Plain(strings.Join(Arguments(pid), " "))}
}

// Self returns this process.
func Self() Process { return ProcessOf(os.Getpid()) }

// Arguments returns the command line of a process; nil if it cannot be read.
func Arguments(pid int) []string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil || len(text) == 0 { // a kernel thread, or one that is ending, has none
		return nil
	}
	return strings.Split(string(bytes.TrimRight(text, "\x00")), "\x00")
}

// Plain makes foreign text fit for one line of a log.
func Plain(text string) string {
	text = strings.Map(func(r rune) rune {
		if strconv.IsPrint(r) {
			return r
		}
		return '?'
	}, text)
	if len(text) > commandMax {
		text = strings.ToValidUTF8(text[:commandMax], "") + "…"
	}
	return text
}

// Visible lists the process IDs of the visible processes.
func Visible() []int {
	names, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil // the pattern is valid
	}
	var all []int
	for _, name := range names {
		if pid, err := strconv.Atoi(filepath.Base(name)); err == nil {
			all = append(all, pid)
		}
	}
	return all
}

package iptables

import (
	"errors"
	"io/fs"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"

	"github.com/sluice-proxy/sluice/dataplane"
)

// failure is how a program failed.
type failure struct {
	command string
	// status is the exit status; -1 when the program did not exit by itself
	// or never started.
	status int
	// output is its standard error, trimmed.
	output string
	err    error
}

// The exit statuses, from include/xtables.h of iptables: 1 other problem,
// 2 parameter problem, 3 version problem, 4 resource problem. The nft variant
// uses 4 for everything that the kernel refuses, so the words decide there.

// lockHeld tells whether the program gave up waiting for the xtables lock. All
// versions from 1.6.2 on have these words in the message.
func (f *failure) lockHeld() bool {
	return f.status == 4 && strings.Contains(f.output, "xtables lock")
}

// wordsOf holds the words that decide, tried in order.
var wordsOf = [...]struct {
	outcome dataplane.Outcome
	words   []string
}{
	{dataplane.Busy, []string{
		// EAGAIN: somebody else's change came between (legacy), or the
		// transaction has to be repeated (nft).
		"Resource temporarily unavailable",
		"No buffer space available",
		"Interrupted system call",
		"Cannot allocate memory",
		"Memory allocation problem",
	}},
	{dataplane.Unsupported, []string{
		"Couldn't load match", // no such extension on this node
		"missing kernel module",
		"unknown option",      // the extension is older than the option
		"can't initialize ip", // the whole table is missing
		"unable to initialize table",
		"is incompatible, use 'nft' tool",
		"Operation not supported",
		"Protocol not supported",
		"Permission denied (you must be root)",
		"Failed to initialize nft",
	}},
}

// outcome sorts the failure by what the caller should do next. What is not
// recognised is a refusal: the culprit search finds out whose fault it is, and
// that it is nobody's when the scaffold alone is refused as well.
func (f *failure) outcome() dataplane.Outcome {
	if f.lockHeld() {
		return dataplane.Busy
	}
	if f.status == -1 {
		return f.notExited()
	}
	for _, kind := range wordsOf {
		for _, words := range kind.words {
			if strings.Contains(f.output, words) {
				return kind.outcome
			}
		}
	}
	return dataplane.Rejected
}

// notExited sorts failures to start, and ends by a signal.
func (f *failure) notExited() dataplane.Outcome {
	switch {
	case errors.Is(f.err, exec.ErrNotFound), errors.Is(f.err, fs.ErrNotExist), errors.Is(f.err, fs.ErrPermission):
		return dataplane.Unsupported
	case errors.Is(f.err, syscall.EAGAIN), errors.Is(f.err, syscall.ENOMEM):
		return dataplane.Busy
	}
	return dataplane.Unknown
}

// lineNamed matches the three ways in which the programs name a line of their
// input: "Error occurred at line: 3" (both, on parsing), "iptables-restore:
// line 8 failed" (legacy, on commit), "line 7: RULE_APPEND failed" (nft, on
// commit).
var lineNamed = regexp.MustCompile(`(?m)(?:at |^|: )line:? (\d+)(?:: | failed|$)`)

// line gives the line of the input that the program named first, 0 for none.
func (f *failure) line() int {
	match := lineNamed.FindStringSubmatch(f.output)
	if match == nil {
		return 0
	}
	line, err := strconv.Atoi(match[1])
	if err != nil {
		return 0 // too large to be a line
	}
	return line
}

// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/iptables/render"
	"github.com/sluice-proxy/sluice/internal/host/holder"
)

// Tool changes one family's tables. [Exec] runs the programs; tests have other implementations. Calls
// block, and only one goroutine at a time makes them.
type Tool interface {
	// Restore feeds input to "iptables-restore --noflush". Tables commit one by one, in the
	// order in which the input names them. A failure is a *ToolError.
	Restore(ctx context.Context, input []byte) error
	// Save returns what "iptables-save -t TABLE" prints.
	Save(ctx context.Context, table render.Table) ([]byte, error)
	// SaveCounters returns the rules of a table that count, in one of the forms that printedCounter reads.
	SaveCounters(ctx context.Context, table render.Table) ([]byte, error)
	// EnsureHook inserts a rule at position 1 of a built-in chain unless it exists already. The
	// rule is the argument list that follows "-A CHAIN".
	EnsureHook(ctx context.Context, table render.Table, chain string, rule []string) error
	// RemoveHook deletes every copy of a rule. A missing rule is no error.
	RemoveHook(ctx context.Context, table render.Table, chain string, rule []string) error
	// HasHook reports whether a chain contains a rule.
	HasHook(ctx context.Context, table render.Table, chain string, rule []string) (bool, error)
	// HasChain reports whether a chain exists.
	HasChain(ctx context.Context, table render.Table, chain string) (bool, error)
	// Chains returns the names of all chains of a table.
	Chains(ctx context.Context, table render.Table) ([]string, error)
	// List prints chains as iptables -S does. It returns the names of the chains that it cannot print.
	List(ctx context.Context, table render.Table, chains []string) (printed []byte, unprintable []string, err error)
	// Jumps returns the names of the chains that rules of a table jump to, by the chains that contain the rules.
	Jumps(ctx context.Context, table render.Table) (map[string][]string, error)
	// TableSize returns the size of a table, and false if it cannot read the size cheaply. If the size is unchanged,
	// entries were not only added or only removed.
	TableSize(table render.Table) (size, bool)
	// Announced reports whether the kernel announces changes of the tables.
	Announced() bool
	// OnStart makes the tool call started with the ID of each process, right after its start.
	OnStart(started func(pid int))
}

// ToolError describes the failure of a command.
type ToolError struct {
	// Outcome is Busy, Unknown, Rejected or Unsupported.
	Outcome dataplane.Outcome
	// Command is the command line without its input.
	Command string
	// Line is the line of the input that the tool named, counted from 1; 0 if it named none. It
	// is a hint: the tool may name a correct line.
	Line int
	// Output is what the tool printed on its standard error, trimmed.
	Output string
	// Err is the underlying error of running the command.
	Err error
}

// Error returns the command, the exit status and the tool's error message.
func (e *ToolError) Error() string {
	return fmt.Sprintf("%s: %v: %s", e.Command, e.Err, e.Output)
}

// Unwrap returns the error of running the command.
func (e *ToolError) Unwrap() error { return e.Err }

// failure is how a program failed.
type failure struct {
	command string
	// status is the exit status; -1 if the program was killed or never started.
	status int
	// output is its standard error, trimmed.
	output string
	err    error
}

// toolError describes the failure of any of the programs.
func (f failure) toolError(ctx context.Context) *ToolError {
	e := &ToolError{Outcome: f.outcome(), Command: f.command, Line: f.line(), Output: f.output, Err: f.err}
	switch {
	case ctx.Err() != nil:
		e.Outcome = dataplane.Unknown
		e.Err = fmt.Errorf("%w (%w)", context.Cause(ctx), f.err)
	case f.lockHeld():
		e.Err = fmt.Errorf("%w; %s", f.err, describeHolder(LockPath()))
	}
	return e
}

// The exit statuses, from include/xtables.h of iptables: 1 other problem, 2 parameter problem,
// 3 version problem, 4 resource problem. The nft variant uses 4 for everything that the kernel
// rejects, so its message decides.

// lockHeld reports whether the program gave up waiting for the xtables lock. The message of all
// versions from 1.6.2 on contains these words.
func (f *failure) lockHeld() bool {
	return f.status == 4 && strings.Contains(f.output, "xtables lock")
}

// wordsOf has the parts of messages that decide the outcome, in the order of the checks.
var wordsOf = [...]struct {
	outcome dataplane.Outcome
	words   []string
}{
	{dataplane.Busy, []string{
		// EAGAIN: another program changed the table at the same time (legacy), or the transaction
		// has to be repeated (nft).
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

// outcome classifies the failure by what the caller should do next. An unknown failure counts as
// rejected: bisection finds the Service that causes it, or finds that the scaffold alone is
// rejected as well.
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

// notExited classifies failures to start, and ends by a signal.
func (f *failure) notExited() dataplane.Outcome {
	switch {
	case errors.Is(f.err, exec.ErrNotFound), errors.Is(f.err, fs.ErrNotExist),
		errors.Is(f.err, fs.ErrPermission):
		return dataplane.Unsupported
	case errors.Is(f.err, syscall.EAGAIN), errors.Is(f.err, syscall.ENOMEM):
		return dataplane.Busy
	}
	return dataplane.Unknown
}

// lineNamed matches the three ways in which the programs name a line of their input: "Error
// occurred at line: 3" (both, on parsing), "iptables-restore: line 8 failed" (legacy, on commit),
// "line 7: RULE_APPEND failed" (nft, on commit).
var lineNamed = regexp.MustCompile(`(?m)(?:at |^|: )line:? (\d+)(?:: | failed|$)`)

// line returns the first line of the input that the program named, 0 for none.
func (f *failure) line() int {
	match := lineNamed.FindStringSubmatch(f.output)
	if match == nil {
		return 0
	}
	line, err := strconv.Atoi(match[1])
	if err != nil {
		return 0 // too large for a line number
	}
	return line
}

// lockEnv names another lock file, for sandboxes. The programs use it, too (seen with 1.8.9).
const lockEnv = "XTABLES_LOCKFILE"

// lockDefault is the lock that all users of iptables on a node share.
const lockDefault = "/run/xtables.lock"

// LockPath returns the lock file that the programs use.
func LockPath() string {
	if path := os.Getenv(lockEnv); path != "" {
		return path
	}
	return lockDefault
}

// describeHolder names the holder of the lock, as far as this process can see it.
func describeHolder(path string) string {
	locks, err := os.Open("/proc/locks")
	if err != nil {
		return fmt.Sprintf("who holds %s is not known: %v", path, err)
	}
	defer locks.Close() // opened for reading, nothing can be lost
	var stat unix.Stat_t
	if err := unix.Stat(path, &stat); err != nil {
		return fmt.Sprintf("who holds %s is not known: %v", path, err)
	}
	pid := lockHolder(locks, uint64(stat.Dev), stat.Ino)
	if pid == "" {
		return fmt.Sprintf("%s was released since", path)
	}
	visible, _ := strconv.Atoi(pid) // 0 or -1 for a process outside this PID namespace
	return fmt.Sprintf("%s is held by %s", path, holder.ProcessOf(visible))
}

// lockHolder finds the process with a flock on a file in /proc/locks, whose lines read "1: FLOCK
// ADVISORY WRITE pid major:minor:inode start end", with device numbers in hexadecimal and the
// inode in decimal. A line with "->" after the number is a process that waits.
func lockHolder(locks io.Reader, dev, inode uint64) (pid string) {
	file := fmt.Sprintf("%02x:%02x:%d", unix.Major(dev), unix.Minor(dev), inode)
	lines := bufio.NewScanner(locks)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) >= 6 && fields[1] == "FLOCK" && fields[5] == file {
			return fields[4]
		}
	}
	return ""
}

// LockShared reports whether the lock file is the host's, so that it also locks out other programs on
// the node. A proxy with a separate lock (a container without the host's /run/xtables.lock) and other
// programs would overwrite each other's rules.
//
// It compares the file with the host's if the host's processes are visible. In another PID namespace it
// can only check whether the file is on the container's root file system; anything mounted counts as
// the host's. A different file from XTABLES_LOCKFILE is not shared.
func LockShared() (bool, error) {
	path := LockPath()
	if path != lockDefault {
		if same, err := sameFile(path, lockDefault); err != nil || !same {
			return false, err
		}
	}
	return SharedWithHost(path)
}

// SharedWithHost reports whether the file at a path is the host's, with the limits of LockShared.
func SharedWithHost(path string) (bool, error) {
	shared, err := lockShared(path, "/proc")
	if err != nil {
		return false, fmt.Errorf("find out whether %s is the host's: %w", path, err)
	}
	return shared, nil
}

func lockShared(path, proc string) (bool, error) {
	pidNamespace, err := os.Readlink(filepath.Join(proc, "self/ns/pid"))
	if err != nil {
		return false, err
	}
	if pidNamespace == holder.InitialPIDs {
		return sameFile(path, filepath.Join(proc, "1/root", path))
	}
	mounts, err := os.Open(filepath.Join(proc, "self/mountinfo"))
	if err != nil {
		return false, err
	}
	defer mounts.Close() // opened for reading, nothing can be lost
	resolved, err := filepath.EvalSymlinks(path)
	if err != nil {
		resolved = path
	}
	return mountOf(mounts, resolved) != "/", nil
}

// sameFile compares two files, or the directories that will contain them.
func sameFile(a, b string) (bool, error) {
	infoA, errA := os.Stat(a)
	infoB, errB := os.Stat(b)
	if os.IsNotExist(errA) && os.IsNotExist(errB) {
		infoA, errA = os.Stat(filepath.Dir(a))
		infoB, errB = os.Stat(filepath.Dir(b))
	}
	switch {
	case os.IsNotExist(errA) || os.IsNotExist(errB):
		return false, nil
	case errA != nil:
		return false, errA
	case errB != nil:
		return false, errB
	}
	return os.SameFile(infoA, infoB), nil
}

// mountOf returns the mount point that a path lies under: the longest one that contains it. The
// fifth field of a mountinfo line is the mount point (Documentation/filesystems/proc.rst).
func mountOf(mounts io.Reader, path string) string {
	longest := ""
	lines := bufio.NewScanner(mounts)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 5 {
			continue
		}
		point := fields[4]
		below := point == "/" || path == point || strings.HasPrefix(path, point+"/")
		if below && len(point) >= len(longest) {
			longest = point
		}
	}
	return longest
}

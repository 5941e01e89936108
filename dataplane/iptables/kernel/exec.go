// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	goiptables "github.com/coreos/go-iptables/iptables"

	"github.com/sluice-proxy/sluice/dataplane/iptables/render"
	"github.com/sluice-proxy/sluice/service"
)

// Exec is the [Tool] that runs the real programs of one variant, for one family. It uses package
// go-iptables for versions, for whether a rule or a chain exists, and for the content of a chain. It
// runs the programs itself for three things: iptables-restore and iptables-save, which go-iptables does
// not support, and changes of single rules, because the watch needs the process ID of each change
// (OnStart).
//
// Programs older than 1.6.2 are rejected: they cannot wait for the lock for a given time, and
// would need a separate locking scheme. Newer programs do all locking themselves. Legacy programs
// lock /run/xtables.lock, or the file that the environment variable XTABLES_LOCKFILE names, once
// per table. Those of nft lock nothing, because the kernel orders their transactions.
//
// Child processes inherit the calling thread's network namespace and the process's environment.
type Exec struct {
	family   service.Family
	programs programs
	// waitSeconds limits the wait for the lock, per table.
	waitSeconds int
	// started is called with the ID of each process that may change something.
	started func(pid int)
}

var _ Tool = (*Exec)(nil)

// ExecConfig selects the programs that an Exec runs. Zero values are the default.
type ExecConfig struct {
	Family service.Family
	// Variant must be Legacy or NFT; see [Detect].
	Variant Variant
	// LockWait limits the wait for the xtables lock, per table of an input, in whole seconds,
	// rounded up. Default 5 s.
	LockWait time.Duration
}

const lockWaitDefault = 5 * time.Second

// waitDelay is how long a killed child's pipes may stay open. The programs start no children of
// their own, so the pipes close with them.
const waitDelay = time.Second

// NewExec finds the programs and checks their version. It fails with a *MissingError if there are
// none, or if they are too old.
func NewExec(ctx context.Context, config ExecConfig) (*Exec, error) {
	if config.LockWait <= 0 {
		config.LockWait = lockWaitDefault
	}
	waitSeconds := int((config.LockWait + time.Second - 1) / time.Second)
	found, err := findPrograms(ctx, config.Family, config.Variant, waitSeconds)
	if err != nil {
		return nil, err
	}
	return &Exec{family: config.Family, programs: found, waitSeconds: waitSeconds, started: func(int) {}}, nil
}

// Variant returns the variant of the programs.
func (e *Exec) Variant() Variant { return e.programs.variant }

// Announced reports whether the kernel announces changes of the tables, as it does in the nft
// variant.
func (e *Exec) Announced() bool { return e.programs.variant == NFT }

// OnStart makes e call started with the ID of each process that may change something.
func (e *Exec) OnStart(started func(pid int)) { e.started = started }

// Restore runs iptables-restore --noflush. It passes no --counters: the flag makes the program
// use the counters in the input, which has none. Without the flag, rules in chains that
// the input does not name keep their counters (TestKernelWriter_CountersSurvive). The policy counters of
// built-in chains do not survive in the legacy variant, with the flag or without, after any
// change of such a table by any program (seen with 1.8.9).
//
// When the context ends, the child is killed and the outcome is Unknown.
func (e *Exec) Restore(ctx context.Context, input []byte) error {
	_, err := e.run(ctx, input, e.programs.restore, "--noflush", "-w", strconv.Itoa(e.waitSeconds))
	return err
}

// WouldCreate reports whether listing a table would create it, as it does in the legacy variant. It
// returns true if this process may not read whether the table exists.
func (e *Exec) WouldCreate(table render.Table) bool {
	if e.programs.variant != Legacy {
		return false
	}
	exists, err := legacyTableExists(e.family, table)
	return err != nil || !exists
}

// Save runs iptables-save, which takes no lock. It does not create a table: for a missing table it
// returns nothing in both variants.
func (e *Exec) Save(ctx context.Context, table render.Table) ([]byte, error) {
	return e.save(ctx, table)
}

// SaveCounters is Save with counters. For a table that iptables-save cannot print, it lists only the chains that count.
func (e *Exec) SaveCounters(ctx context.Context, table render.Table) ([]byte, error) {
	printed, err := e.save(ctx, table, "-c")
	if err == nil && isUnprintable(table, printed) {
		return e.listCounters(ctx, table)
	}
	return printed, err
}

func (e *Exec) save(ctx context.Context, table render.Table, more ...string) ([]byte, error) {
	if e.programs.variant == Legacy {
		if exists, err := legacyTableExists(e.family, table); err != nil || !exists {
			return nil, err
		}
	}
	return e.run(ctx, nil, e.programs.save, append([]string{"-t", string(table)}, more...)...)
}

// legacyTableExists reads the list of legacy tables in this network namespace. Listing a table
// with iptables-legacy would load the kernel's modules and create the table on a node that does
// not use it. The list itself appears with the first table. If this process may not read the list, the
// error wraps fs.ErrPermission. After any other error it returns true.
func legacyTableExists(family service.Family, table render.Table) (bool, error) {
	names, err := legacyTables(family)
	switch {
	case err == nil:
		return slices.Contains(names, string(table)), nil
	case errors.Is(err, fs.ErrPermission):
		return false, fmt.Errorf("cannot determine whether iptables-legacy contains rules: %w (only root and CAP_DAC_READ_SEARCH may)", err)
	}
	return true, nil
}

// LegacyTables returns the names of the legacy tables in the network namespace of the calling thread. It returns
// none if this process may not read them.
func LegacyTables(family service.Family) []string {
	names, _ := legacyTables(family)
	return names
}

func legacyTables(family service.Family) ([]string, error) {
	list := "/proc/thread-self/net/ip_tables_names"
	if family == service.IPv6 {
		list = "/proc/thread-self/net/ip6_tables_names"
	}
	names, err := os.ReadFile(list)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return strings.Fields(string(names)), err
}

// copiesMax limits how many copies of one hook are removed. Two proxies, one after the other, leave two;
// a thousand would mean that deletions have no effect.
const copiesMax = 1000

// EnsureHook inserts a rule at position 1 of a built-in chain unless it exists.
func (e *Exec) EnsureHook(ctx context.Context, table render.Table, chain string, rule []string) error {
	exists, err := e.HasHook(ctx, table, chain, rule)
	if err != nil || exists {
		return err
	}
	return e.edit(ctx, table, append([]string{"-I", chain, "1"}, rule...))
}

// RemoveHook deletes every copy of a rule.
func (e *Exec) RemoveHook(ctx context.Context, table render.Table, chain string, rule []string) error {
	for range copiesMax {
		exists, err := e.HasHook(ctx, table, chain, rule)
		if err != nil || !exists {
			return err
		}
		if err := e.edit(ctx, table, append([]string{"-D", chain}, rule...)); err != nil {
			return err
		}
	}
	return e.answerError(ctx, fmt.Errorf("the rule still exists after %d deletions", copiesMax),
		table, append([]string{"-D", chain}, rule...)...)
}

// edit changes a single rule.
func (e *Exec) edit(ctx context.Context, table render.Table, args []string) error {
	args = append([]string{"-w", strconv.Itoa(e.waitSeconds), "-t", string(table)}, args...)
	_, err := e.run(ctx, nil, e.programs.iptables, args...)
	return err
}

// HasChain reports whether a chain exists. If the tool cannot tell, for example because the lock
// is held, it returns an error.
func (e *Exec) HasChain(ctx context.Context, table render.Table, chain string) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, context.Cause(ctx)
	}
	if e.programs.variant == NFT {
		chains, err := e.Chains(ctx, table)
		return slices.Contains(chains, chain), err
	}
	exists, err := e.programs.library.ChainExists(string(table), chain)
	if err != nil {
		return false, e.answerError(ctx, err, table, "-S", chain)
	}
	return exists, nil
}

// HasHook reports whether a rule exists. The end of the context does not interrupt it; its wait for
// the lock is limited.
func (e *Exec) HasHook(ctx context.Context, table render.Table, chain string, rule []string) (bool, error) {
	err := ctx.Err()
	if err == nil {
		var exists bool
		if exists, err = e.programs.library.Exists(string(table), chain, rule...); err == nil {
			return exists, nil
		}
		// If the target chain does not exist, neither does the rule. The programs then exit with
		// status 2 instead of 1: "Couldn't load target" (legacy), "Chain 'X' does not exist" (nft).
		// The library's IsNotExist also matches a missing extension and a missing lock file.
		text := err.Error()
		if strings.Contains(text, "Couldn't load target") || strings.Contains(text, "does not exist") {
			return false, nil
		}
	}
	return false, e.answerError(ctx, err, table, append([]string{"-C", chain}, rule...)...)
}

// answerError turns an error of go-iptables into a *ToolError.
func (e *Exec) answerError(ctx context.Context, err error, table render.Table, args ...string) error {
	f := failure{
		command: strings.Join(append([]string{e.programs.iptables, "-t", string(table)}, args...), " "),
		status:  -1,
		err:     err,
	}
	if exit, ok := errors.AsType[*goiptables.Error](err); ok {
		f.status = exit.ExitStatus()
		f.err = fmt.Errorf("exit status %d", f.status)
		// The library prints the tool's output after its own text.
		_, words, _ := strings.Cut(exit.Error(), fmt.Sprintf("exit status %d: ", f.status))
		f.output = strings.TrimSpace(words)
	}
	return f.toolError(ctx)
}

// run runs one program to its end and returns what it printed, also before a failure. Every failure is a *ToolError.
func (e *Exec) run(ctx context.Context, input []byte, program string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.WaitDelay = waitDelay
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if input != nil {
		cmd.Stdin = bytes.NewReader(input)
	}
	err := cmd.Start()
	if err == nil {
		e.started(cmd.Process.Pid)
		err = cmd.Wait()
	}
	if err == nil {
		return stdout.Bytes(), nil
	}
	status := -1
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		status = exit.ExitCode()
	}
	return stdout.Bytes(), failure{
		command: strings.Join(cmd.Args, " "),
		status:  status,
		output:  strings.TrimSpace(stderr.String()),
		err:     err,
	}.toolError(ctx)
}

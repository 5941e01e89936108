package iptables

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

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// Exec is the [Tool] that runs the real programs of one variant, for one
// family: iptables-restore and iptables-save for chains, iptables itself (by
// way of go-iptables) for hooks.
//
// Programs older than 1.6.2 are refused: they cannot wait for the lock for a
// stated time, and would need a locking scheme of their own. From that version
// on, all locking is left to the programs. The legacy ones lock
// /run/xtables.lock, or the file that the environment variable XTABLES_LOCKFILE
// names, once per table; the nft ones lock nothing, for the kernel orders
// their transactions.
//
// Children inherit the calling thread's network namespace and the process's
// environment.
type Exec struct {
	family   service.Family
	programs programs
	hooks    *goiptables.IPTables
	// waitSeconds bounds the wait for the lock, per table.
	waitSeconds int
	// started is told of each process.
	started func(pid int)
}

// ExecConfig says which programs an Exec runs. Zero values are the default.
type ExecConfig struct {
	Family service.Family
	// Variant must be Legacy or NFT; see [Detect].
	Variant Variant
	// LockWait bounds the wait for the xtables lock, per table of an input;
	// whole seconds, rounded up. Default 5 s.
	LockWait time.Duration
}

const lockWaitDefault = 5 * time.Second

// waitDelay is how long a killed child's pipes may stay open. The programs
// start no children of their own, so they close with it.
const waitDelay = time.Second

// NewExec finds the programs and checks their version. It fails with a
// *MissingError when there are none, or too old ones.
func NewExec(ctx context.Context, config ExecConfig) (*Exec, error) {
	if config.LockWait <= 0 {
		config.LockWait = lockWaitDefault
	}
	found, err := findPrograms(ctx, config.Family, config.Variant)
	if err != nil {
		return nil, err
	}
	e := &Exec{
		family:      config.Family,
		programs:    found,
		waitSeconds: int((config.LockWait + time.Second - 1) / time.Second),
		started:     func(int) {},
	}
	protocol := goiptables.ProtocolIPv4
	if config.Family == service.IPv6 {
		protocol = goiptables.ProtocolIPv6
	}
	e.hooks, err = goiptables.New(
		goiptables.IPFamily(protocol), goiptables.Timeout(e.waitSeconds), goiptables.Path(found.iptables))
	if err != nil {
		return nil, fmt.Errorf("prepare %s: %w", found.iptables, err)
	}
	return e, nil
}

// Variant tells which programs are run.
func (e *Exec) Variant() Variant { return e.programs.variant }

// Announced reports whether the kernel announces what is done to the tables: it does in
// the nft variant.
func (e *Exec) Announced() bool { return e.programs.variant == NFT }

// OnStart has started called with the number of each process that changes something.
func (e *Exec) OnStart(started func(pid int)) { e.started = started }

// Version is that of the programs, for example "1.8.9".
func (e *Exec) Version() string { return e.programs.version.String() }

// Restore runs iptables-restore --noflush. It passes no --counters: the flag
// makes the program take over the counters in the input, of which ours has none
// worth taking, and rules in chains that the input does not name keep theirs
// without it (TestKernelCountersSurvive). The policy counters of built-in
// chains do not survive in the legacy variant, with the flag or without, as
// with every change that anybody makes to such a table (seen with 1.8.9).
//
// When the context ends, the child is killed and the outcome is Unknown.
func (e *Exec) Restore(ctx context.Context, input []byte) error {
	_, err := e.run(ctx, input, e.programs.restore, "--noflush", "-w", strconv.Itoa(e.waitSeconds))
	return err
}

// Save runs iptables-save, which takes no lock. It does not bring a table into
// being: one that does not exist yet saves as nothing in both variants.
func (e *Exec) Save(ctx context.Context, table Table) ([]byte, error) {
	if e.programs.variant == Legacy && !legacyTableExists(e.family, table) {
		return nil, nil
	}
	return e.run(ctx, nil, e.programs.save, "-t", string(table))
}

// legacyTableExists looks at the list of legacy tables in this network
// namespace. Listing a table by iptables-legacy would load the kernel's modules
// and make the table, on a node where nobody wants it; the list says so without.
// The list itself appears with the first table. In doubt the table exists.
func legacyTableExists(family service.Family, table Table) bool {
	list := "/proc/thread-self/net/ip_tables_names"
	if family == service.IPv6 {
		list = "/proc/thread-self/net/ip6_tables_names"
	}
	names, err := os.ReadFile(list)
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist)
	}
	return slices.Contains(strings.Fields(string(names)), string(table))
}

// run runs one program to its end and gives what it printed. Every failure is a
// *ToolError.
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
	return nil, e.fail(ctx, failure{
		command: strings.Join(cmd.Args, " "),
		status:  status,
		output:  strings.TrimSpace(stderr.String()),
		err:     err,
	})
}

// fail describes a failure of any of the programs.
func (e *Exec) fail(ctx context.Context, f failure) *ToolError {
	toolErr := &ToolError{
		Outcome: f.outcome(),
		Command: f.command,
		Line:    f.line(),
		Output:  f.output,
		Err:     f.err,
	}
	switch {
	case ctx.Err() != nil:
		toolErr.Outcome = dataplane.Unknown
		toolErr.Err = fmt.Errorf("%w (%w)", context.Cause(ctx), f.err)
	case f.lockHeld():
		toolErr.Err = fmt.Errorf("%w; %s", f.err, describeHolder(LockPath()))
	}
	return toolErr
}

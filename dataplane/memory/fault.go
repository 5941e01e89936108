package memory

import (
	"context"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/iptables"
)

// Faults decides, before a command runs, what goes wrong with it. It may be
// called from several goroutines and may use the kernel.
type Faults func(call Call) Fault

// Call describes the command that is about to run.
type Call struct {
	// Command is the program, for example "iptables-restore".
	Command string
	// Table is the table of a save or a hook, empty for a restore.
	Table iptables.Table
	// Input is what a restore was given, nil for all others; not to be changed.
	Input []byte
}

// Fault is what goes wrong with one command; the zero Fault is nothing.
type Fault struct {
	// Wait makes the command slow: it does nothing until the channel delivers
	// or is closed. A context that ends first ends the command, without effect
	// and with an unknown outcome.
	Wait <-chan time.Time
	// Refuse makes the kernel refuse the table of a restore in which a line
	// contains this text, at its COMMIT. Empty refuses nothing.
	Refuse string
	// Blame is the line that the tool names when Refuse strikes.
	Blame Blame
	// Outcome, when not Landed, ends the command with this outcome: a restore
	// once Tables tables have landed, every other command at once.
	Outcome dataplane.Outcome
	// Tables is how many tables of a restore land before Outcome ends it. With
	// a number above those in the input, everything lands and the caller is
	// told otherwise.
	Tables int
}

// Blame says which line a tool names when the kernel refuses a table.
type Blame uint8

const (
	// BlameLine names the line that is at fault.
	BlameLine Blame = iota
	// BlameCommit names the COMMIT line, as iptables-legacy-restore 1.8 does.
	BlameCommit
	// BlameNobody names no line.
	BlameNobody
)

// SetFaults makes commands fail from now on; nil ends it.
func (k *Kernel) SetFaults(faults Faults) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.faults = faults
}

// begin asks for a fault and waits if that says so. No lock is held meanwhile.
func (k *Kernel) begin(ctx context.Context, call Call) (Fault, error) {
	k.mu.Lock()
	faults := k.faults
	k.mu.Unlock()
	var fault Fault
	if faults != nil {
		fault = faults(call)
	}
	if fault.Wait != nil {
		select {
		case <-fault.Wait:
		case <-ctx.Done():
		}
	}
	if err := ctx.Err(); err != nil {
		return fault, &iptables.ToolError{Outcome: dataplane.Unknown, Command: call.Command, Err: err}
	}
	return fault, nil
}

// inject gives the error of a fault that ends a command, nil when it does not.
func (k *Kernel) inject(fault Fault, command string) error {
	words := map[dataplane.Outcome]string{
		dataplane.Busy:        "Another app is currently holding the xtables lock.",
		dataplane.Unknown:     "",
		dataplane.Rejected:    command + ": failed",
		dataplane.Unsupported: "can't initialize iptables table: Table does not exist",
	}
	if fault.Outcome == dataplane.Landed {
		return nil
	}
	err := errExit
	if fault.Outcome == dataplane.Unknown {
		err = context.DeadlineExceeded
	}
	return &iptables.ToolError{
		Outcome: fault.Outcome,
		Command: command,
		Output:  words[fault.Outcome],
		Err:     err,
	}
}

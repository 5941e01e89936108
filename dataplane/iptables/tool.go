package iptables

import (
	"context"
	"fmt"

	"github.com/sluice-proxy/sluice/dataplane"
)

// Table names one of the tables that Sluice writes to.
type Table string

// The tables, in the order in which iptables-save prints them.
const (
	Mangle Table = "mangle"
	Filter Table = "filter"
	NAT    Table = "nat"
)

// Tool is the program family that changes one family's tables: iptables-restore
// and its siblings of one variant, or the in-memory kernel of package memory.
// Calls block; one goroutine at a time.
type Tool interface {
	// Restore feeds input to "iptables-restore --noflush". Tables commit one
	// by one, in the order in which the input names them. A failure is a
	// *ToolError.
	Restore(ctx context.Context, input []byte) error
	// Save gives what "iptables-save -t TABLE" prints.
	Save(ctx context.Context, table Table) ([]byte, error)
	// EnsureHook inserts a rule at position 1 of a built-in chain unless it is
	// there already. The rule is the argument list behind "-A CHAIN".
	EnsureHook(ctx context.Context, table Table, chain string, rule []string) error
	// RemoveHook deletes every copy of a rule; a missing one is no error.
	RemoveHook(ctx context.Context, table Table, chain string, rule []string) error
}

// ToolError says how a command failed.
type ToolError struct {
	// Outcome is Busy, Unknown, Rejected or Unsupported.
	Outcome dataplane.Outcome
	// Command is the command line without its input.
	Command string
	// Line is the line of the input that the tool named, counted from 1; 0
	// when it named none. It is a hint: the tool may name an innocent line.
	Line int
	// Output is what the tool printed on its standard error, trimmed.
	Output string
	// Err is the underlying error of running the command.
	Err error
}

// Error gives the command, the tool's own words and the exit status.
func (e *ToolError) Error() string {
	return fmt.Sprintf("%s: %v: %s", e.Command, e.Err, e.Output)
}

// Unwrap gives the error of running the command.
func (e *ToolError) Unwrap() error { return e.Err }

package memory

import (
	"errors"
	"fmt"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/iptables"
)

// errExit stands for the exit status with which the tools end after a refusal.
var errExit = errors.New("exit status 1")

// refuse makes the error for something that the tool or the kernel refused. A
// line of 0 names none.
func (k *Kernel) refuse(command string, line int, reason error) *iptables.ToolError {
	k.counters.Refused++
	words := fmt.Sprintf("%s: %v", command, reason)
	if line > 0 {
		words = fmt.Sprintf("%s: line %d failed: %v", command, line, reason)
	}
	return &iptables.ToolError{
		Outcome: dataplane.Rejected,
		Command: command,
		Line:    line,
		Output:  words,
		Err:     errExit,
	}
}

func noTable(name iptables.Table) error {
	return refusef("can't initialize iptables table `%s': Table does not exist", name)
}

package sim

import (
	"strings"
	"sync"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/iptables"
	"github.com/sluice-proxy/sluice/dataplane/memory"
)

// byHand begins the inputs that the simulation itself writes; nothing goes wrong
// with them.
const byHand = "# by hand\n"

// outage decides what goes wrong with the commands of one kernel.
type outage struct {
	troubles *troubles
	blame    memory.Blame

	mu    sync.Mutex
	armed []mishap
}

// mishap is something that will go wrong a number of times.
type mishap struct {
	// command is the end of the program's name, "" for all programs.
	command string
	fault   memory.Fault
	delay   time.Duration
	times   int
}

// arm adds a mishap; those of the same command strike one after the other.
func (o *outage) arm(m mishap) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.armed = append(o.armed, m)
}

// fault implements memory.Faults.
func (o *outage) fault(call memory.Call) memory.Fault {
	if strings.HasPrefix(string(call.Input), byHand) {
		return memory.Fault{}
	}
	fault := o.strike(call)
	if call.Input != nil && fault.Refuse == "" {
		fault.Refuse = o.troubles.refusal(call.Input)
		fault.Blame = o.blame
	}
	return fault
}

func (o *outage) strike(call memory.Call) memory.Fault {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := range o.armed {
		m := &o.armed[i]
		if m.times == 0 || !strings.HasSuffix(call.Command, m.command) {
			continue
		}
		m.times--
		fault := m.fault
		if m.delay > 0 {
			fault.Wait = time.After(m.delay)
		}
		return fault
	}
	return memory.Fault{}
}

// commands are those that can be told to fail: restores most of the time.
var commands = []string{"-restore", "-restore", "-restore", "-save", "tables"}

// shapeFailure gives commands that fail, times times.
func shapeFailure(shape uint64, times int) mishap {
	d := newDice(shape, 0)
	m := mishap{command: commands[d.IntN(len(commands))], times: times}
	m.fault.Outcome = []dataplane.Outcome{
		dataplane.Busy, dataplane.Unknown, dataplane.Unknown, dataplane.Rejected, dataplane.Unsupported,
	}[d.IntN(5)]
	m.fault.Tables = d.IntN(5) // of up to four sections
	return m
}

// shapeSlowness gives commands that are slow; one past the write timeout strikes
// once.
func shapeSlowness(shape uint64, times int) mishap {
	d := newDice(shape, 0)
	m := mishap{
		command: commands[d.IntN(len(commands))], times: times,
		delay: []time.Duration{time.Second, 15 * time.Second, 3 * time.Minute}[d.IntN(3)],
	}
	if m.delay > time.Minute {
		m.times = 1
	}
	return m
}

var tables = []iptables.Table{iptables.Mangle, iptables.Filter, iptables.NAT}

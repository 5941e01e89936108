// SPDX-License-Identifier: Apache-2.0

package aggregator

import (
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/ledger"
	"github.com/sluice-proxy/sluice/service"
)

// machine makes the decisions of one domain, and owns its ledger. It is pure: it has no goroutine
// and no clock, and does no I/O. The driver calls step for each event and carries out what step
// returns, so a sequence of events and times always has the same result.
type machine struct {
	world
	ledger     *ledger.Ledger
	pacer      *Pacer
	gate       *gate
	quarantine quarantine
	repairs    repairs
	tries      tries
	failing    failing
	pending    pending
	// costly has the Services whose next changes wait.
	costly map[service.Key]*costly
	start  start
	health health
	// flight is the job that the writer carries out; nil if there is none.
	flight *flight
	// resume continues a step once the driver has delivered the waiting fragments.
	resume func(now time.Time)
	out    effects
}

// world is the environment of the machine. The methods of origin are pure.
type world struct {
	domain   string
	origin   dataplane.Origin
	canAhead bool
	// cut chooses what an ordinary write does; see dataplane.Writer.
	cut func([]dataplane.Change) []dataplane.Change
	// jitter returns a number in [0, 1); see Pacer.Wrote.
	jitter func() float64
}

// tries has the search for culprits and the limits of its tries.
type tries struct {
	bisection bisection
	// next is when the next group may be tried.
	next time.Time
	// usual is the longest duration of recent writes that landed or were rejected, scaled to usualSize changes.
	// unlanded counts writes in a row that did not end in time.
	usual    time.Duration
	unlanded int
	// turn is set if a try may go before the next ordinary write.
	turn bool
	// proving is set until a witness lands. accused is the key that is quarantined then; nil for none.
	proving bool
	accused *accused
	// recheck is set once the bisection has found a new culprit, until an audit is requested.
	recheck bool
}

// pending has the keys whose changes are not fully in the kernel.
type pending struct {
	waits waits
	// sought has the keys that a bisection tries; before the bisection, they are in waits. progress is when its last
	// try began or ended.
	sought waits
	// costly has the keys whose newest fragments are postponed.
	costly   waits
	progress time.Time
	// arrived is when the oldest fragment in the mailbox came, drifted is when an audit found
	// a damaged object; zero for none.
	arrived, drifted time.Time
	// damaged has the keys in waits that wait for a repair only. bare is the time since which the kernel is known to
	// have no rules that serve; zero while it has some, and before the first write.
	damaged map[service.Key]struct{}
	bare    time.Time
}

// start is the progress of the startup.
type start struct {
	// readAhead is set once the read ahead has begun, and adopted once the kernel has been read; no write comes before
	// that. synced is set once Synced was emitted.
	readAhead, adopted, synced bool
	// unlanded are the keys whose writes did not land in the previous process, until each is set aside.
	unlanded map[service.Key]bool
}

// health has the fields of Status that describe the last writes.
type health struct {
	lastWrite   time.Time
	lastError   string
	nodeAtFault bool
}

// effects is what the driver must do after a step.
type effects struct {
	// told has the events and acks, in order.
	told []told
	// begin is the job to begin; nil for none.
	begin *job
	// cut tells the job in flight to end.
	cut bool
	// take requests another step immediately, with the fragments of the mailbox as its input (taken). No other field
	// but told is set then.
	take bool
	// wake is when to call step again without an event; zero for after the next event.
	wake time.Time
}

// told is an event, or, if that is nil, an ack.
type told struct {
	event Event
	ack   dataplane.Ack
}

// input is an input of the machine: one of the types below.
type input interface{ apply(*machine, time.Time) }

type (
	// primed is Prime, skipped is Skip, alarmed is AuditSoon.
	primed  []service.Key
	skipped service.Key
	alarmed struct{ by dataplane.ForeignProcess }
	// released: this process may read and write the kernel's rules from now on. The keys are those whose writes did not
	// land in the previous process.
	released []service.Key
	// arrived: fragments wait in the mailbox. taken has them; see effects.take.
	arrived struct{}
	taken   []*dataplane.Fragment
)

func (keys primed) apply(m *machine, now time.Time) { m.gate.prime(now, keys) }
func (key skipped) apply(m *machine, now time.Time) { m.gate.skip(now, service.Key(key)) }

func (keys released) apply(m *machine, _ time.Time) {
	m.gate.held = false
	for _, key := range keys {
		m.start.unlanded[key] = true
	}
}

func (a alarmed) apply(m *machine, now time.Time) {
	m.pacer.AuditSoon(now)
	m.repairs.announced(now, a.by)
	if !m.pending.bare.IsZero() {
		m.pacer.Busy() // the owner of the table may have ended
	}
}

// apply notes that fragments wait. While the gate is closed they are folded immediately, to see which Services
// submitted. Later they stay in the mailbox, where newer ones may replace them, until a batch is planned.
func (arrived) apply(m *machine, now time.Time) {
	m.pacer.Waiting(now)
	if m.pending.arrived.IsZero() {
		m.pending.arrived = now
	}
	if !m.gate.opened {
		m.take(func(time.Time) {})
	}
}

func (fragments taken) apply(m *machine, now time.Time) {
	m.fold(now, fragments)
	resume := m.resume
	m.resume = nil
	resume(now)
	m.out.wake = now // another step is due immediately
}

func newMachine(config *Config) *machine {
	m := &machine{
		world: world{domain: config.Domain, origin: config.Writer.Origin, canAhead: config.Writer.ReadAhead != nil,
			cut: config.Writer.Cut},
		ledger:     ledger.New(config.Layout, config.Naming, config.Owner),
		pacer:      NewPacer(config.Pace),
		gate:       newGate(config.GateWait),
		quarantine: quarantine{held: map[service.Key]*quarantinedKey{}},
		pending:    pending{waits: newWaits(), sought: newWaits(), costly: newWaits(), damaged: map[service.Key]struct{}{}},
		costly:     map[service.Key]*costly{},
		repairs:    newRepairs(),
		start:      start{unlanded: map[service.Key]bool{}},
	}
	m.gate.held = config.MayWrite != nil
	return m
}

// step takes what happened, in order, and returns what to do.
func (m *machine) step(now time.Time, inputs ...input) effects {
	m.out = effects{}
	for _, in := range inputs {
		in.apply(m, now)
	}
	switch {
	case m.out.take || !m.out.wake.IsZero():
	case m.flight == nil:
		m.out.wake = m.act(now)
	}
	if m.flight != nil && !m.out.take {
		m.out.wake = m.cutIfAwaited(now)
	}
	out := m.out
	m.out = effects{}
	if out.take {
		out.wake = time.Time{}
	}
	return out
}

// take requests the waiting fragments. After they are folded, the machine calls the function then.
func (m *machine) take(then func(now time.Time)) { m.out.take, m.resume = true, then }

// tell emits an event.
func (m *machine) tell(e Event) { m.out.told = append(m.out.told, told{event: e}) }

// answer sends an ack.
func (m *machine) answer(ack dataplane.Ack) { m.out.told = append(m.out.told, told{ack: ack}) }

// fold moves fragments into the ledger.
func (m *machine) fold(now time.Time, fragments []*dataplane.Fragment) {
	since := dataplane.Earliest(m.pending.arrived, now)
	m.pending.arrived = time.Time{} // what arrives from now on wakes the aggregator again
	for _, f := range append(m.duePostponed(now), fragments...) {
		if m.postpone(now, f) {
			continue
		}
		m.gate.submitted(now, f.Key)
		if !m.ledger.Want(f) {
			m.tell(LateRejected{Domain: m.domain, Key: f.Key, Revision: f.Revision})
			continue
		}
		m.setAside(now, f.Key)
		// A quarantined key is tried separately.
		if !m.quarantine.ask(f.Key) && !m.pending.sought.has(f.Key) {
			m.pending.waits.begin(f.Key, since)
		}
	}
}

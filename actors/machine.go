// SPDX-License-Identifier: Apache-2.0

package actors

import (
	"slices"
	"strings"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// State is the state of a Machine.
type State uint8

const (
	// Hydrating: no snapshot has been read yet. Messages are ignored, because the
	// snapshot will include them.
	Hydrating State = iota
	// Live: the Service exists, or this is the node's own actor.
	Live
	// Draining: the Service is gone, and its tombstones wait for their acks.
	Draining
	// Retired: every tombstone is applied.
	Retired
)

// Machine is an actor without its goroutine. Hydrate, SetFacts and Step take the input, including acks, and Conclude
// returns what the actor has to do. It does no I/O and reads no clock. It belongs to one incarnation.
//
//	Hydrating ──hydrate──► Live ◄──spec──┐
//	     │                  │            │
//	     └──hydrate(gone)───┴─spec gone──► Draining ──all applied──► Retired
type Machine struct {
	key      service.Key
	state    State
	revision service.Revision

	spec   *service.Spec
	slices []*service.Slice // sorted by name
	facts  *service.NodeFacts

	// view is the last resolved view: the empty one at first, and nil while it is forgotten. See Forget.
	view *service.View
	// viewed is set once a view was resolved; refacted if the facts have changed since
	// the last rendering; dirty if anything has changed.
	viewed, refacted, dirty bool
	// large is set while the Service is above the limit.
	large  bool
	events []Event
	// stale is set if the machine has missed something and must be hydrated before
	// it concludes.
	stale bool
	cause Cause
	// trace is the trace of the next fragments.
	trace dataplane.Trace

	// outputs are shared by all actors; sent has an entry for each.
	outputs []Output
	sent    []sent
}

// sent describes the last fragment that was submitted to one domain.
type sent struct {
	submitted bool
	digest    uint64
	gone      bool
	revision  service.Revision
	settled   bool
	// reported is set once Ready.Programmed has named the output for the present view.
	reported bool
}

// unseen is the view of a machine that has resolved none.
var unseen service.View

// NewMachine makes the machine of one incarnation.
func NewMachine(key service.Key, incarnation uint64, outputs []Output) *Machine {
	return &Machine{key: key, revision: service.Revision{Incarnation: incarnation}, view: &unseen,
		outputs: outputs, sent: make([]sent, len(outputs))}
}

// State returns the state.
func (m *Machine) State() State { return m.state }

// triggerMax is the age up to which a slice that only Hydrate has delivered counts as the cause of the change. Such a
// slice is younger than that if its Service came soon after it, or if its message was dropped. An older slice waited
// for its Service or for this incarnation, which is the cause then.
const triggerMax = time.Minute

// Hydrate replaces everything by a state that was read at a time. Every fragment is
// submitted again, since acks may have been lost.
func (m *Machine) Hydrate(s service.Snapshot, facts *service.NodeFacts, now time.Time) {
	m.remember()
	for _, slice := range s.Slices {
		// No message about this slice follows: it was dropped, or never posted. Or one follows later, and changes
		// nothing because the machine has the slice already.
		if !m.has(slice) && now.Sub(slice.Received) < triggerMax {
			m.cause = m.cause.or(Cause{Trigger: slice.Trigger})
		}
	}
	m.spec, m.facts = s.Spec, facts
	m.slices = slices.Clone(s.Slices)
	slices.SortFunc(m.slices, func(a, b *service.Slice) int { return strings.Compare(a.Name, b.Name) })
	for i := range m.sent {
		m.sent[i].submitted, m.sent[i].reported = false, false
	}
	m.dirty, m.refacted, m.stale = true, true, false
	if !m.viewed {
		m.trace.Causes |= dataplane.CauseStart
	}
	m.settleState()
}

// SetFacts takes the current facts. Facts that it already has change nothing.
func (m *Machine) SetFacts(facts *service.NodeFacts) {
	if m.state == Hydrating || facts == m.facts {
		return
	}
	m.remember()
	m.facts, m.refacted, m.dirty = facts, true, true
	m.trace.Causes |= dataplane.CauseNode
}

// Stale reports whether the machine has missed something. If so, it must be hydrated
// before the next Conclude.
func (m *Machine) Stale() bool { return m.stale || m.state == Hydrating }

// Step takes one message. FactsChanged changes nothing, because it carries no facts: SetFacts takes them.
func (m *Machine) Step(message Message) {
	if m.state == Hydrating {
		return
	}
	switch msg := message.(type) {
	case SpecChanged:
		m.remember()
		// Slices are not posted while there is no spec.
		m.stale = m.stale || (msg.Spec != nil && (m.spec == nil || msg.Anew))
		m.spec = msg.Spec
		m.changed(msg.Cause, dataplane.CauseService)
	case SliceChanged:
		if m.has(msg.Slice) {
			return // Hydrate has read it
		}
		m.remember()
		m.stepSlice(msg)
		what := dataplane.CauseEndpoints
		if msg.Slice != nil && msg.Slice.Observed != nil {
			what = dataplane.CauseObserved
		}
		m.changed(msg.Cause, what)
	case Acknowledged:
		m.stepAck(msg)
	}
	m.settleState()
}

func (m *Machine) changed(c Cause, what dataplane.Causes) {
	m.cause = m.cause.or(c)
	m.trace.Causes |= what
	m.dirty = true
}

// find returns the position of a slice, or where it belongs.
func (m *Machine) find(name string) (at int, found bool) {
	return slices.BinarySearchFunc(m.slices, name, func(s *service.Slice, name string) int {
		return strings.Compare(s.Name, name)
	})
}

// has reports whether the machine has this version of a slice.
func (m *Machine) has(slice *service.Slice) bool {
	if slice == nil {
		return false
	}
	at, found := m.find(slice.Name)
	return found && m.slices[at] == slice
}

func (m *Machine) stepSlice(msg SliceChanged) {
	at, found := m.find(msg.Name)
	switch {
	case found && msg.Slice == nil:
		m.slices = slices.Delete(m.slices, at, at+1)
	case found:
		m.slices[at] = msg.Slice
	case msg.Slice != nil:
		m.slices = slices.Insert(m.slices, at, msg.Slice)
	}
}

func (m *Machine) stepAck(msg Acknowledged) {
	for i := range m.sent {
		line := &m.sent[i]
		// An ack for a revision settles every earlier one.
		if msg.Domain == m.outputs[i].Name && !msg.Quarantined &&
			msg.Revision.Compare(line.revision) >= 0 {
			line.settled = true
		}
	}
}

// settleState is the only place that changes the state.
func (m *Machine) settleState() {
	switch {
	case m.key == service.Node || m.spec != nil:
		m.state = Live
	case m.drained():
		m.state = Retired
	default:
		m.state = Draining
	}
}

// drained reports whether every domain has applied a tombstone.
func (m *Machine) drained() bool {
	for _, line := range m.sent {
		if !line.submitted || !line.gone || !line.settled {
			return false
		}
	}
	return true
}

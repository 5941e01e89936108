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

// Machine is an actor without its goroutine. It takes messages and answers, and
// decides what to render, when to look at draining endpoints and what to ask about
// them. It does no I/O and reads no clock. It belongs to one incarnation.
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

	// view is the last one that was resolved: the empty one at first, and nil while it is
	// forgotten. See Forget.
	view *service.View
	// viewed is set once a view was resolved; refacted if the facts have changed since
	// the last rendering; dirty if anything has changed.
	viewed, refacted, dirty bool
	// excess is set while the Service asks for more than objectsMax. Its view stays that from
	// before, without the frontends that it gave up since: others may have them.
	excess     bool
	objectsMax int
	events     []Event
	// stale is set if the machine has missed something and must be hydrated before
	// it concludes.
	stale bool
	cause Cause
	// trace is that of the next fragments.
	trace dataplane.Trace

	// outputs are shared by all actors; sent has an entry for each.
	outputs []Output
	sent    []sent
	// drains has an entry per output, nil if it does not drain. It is nil if none
	// does, and for the node's own actor.
	drains []*drain
}

// sent is what one domain was sent last, and how that stands.
type sent struct {
	submitted bool
	digest    uint64
	gone      bool
	revision  service.Revision
	settled   bool
	// reported is set once Programmed has returned the present view.
	reported bool
}

// unseen is the view of a machine that has resolved none.
var unseen service.View

// NewMachine makes the machine of one incarnation. A Service that asks for more than
// objectsMax objects in a domain is not rendered, except to remove frontends that it gave up.
func NewMachine(key service.Key, incarnation uint64, outputs []Output, objectsMax int) *Machine {
	m := &Machine{key: key, revision: service.Revision{Incarnation: incarnation}, view: &unseen,
		objectsMax: objectsMax, outputs: outputs, sent: make([]sent, len(outputs))}
	for i := range outputs {
		if outputs[i].Drain == nil || key == service.Node {
			continue
		}
		if m.drains == nil {
			m.drains = make([]*drain, len(outputs))
		}
		m.drains[i] = &drain{key: key, output: &outputs[i]}
	}
	return m
}

// State returns the state.
func (m *Machine) State() State { return m.state }

// triggerMax is how long after it was received a slice that no message has delivered counts as
// the cause of what follows. It is younger than that if its Service came soon after it, or if its
// message was dropped. Otherwise, the Service or this incarnation is what came late.
const triggerMax = time.Minute

// Hydrate replaces everything by a state that was read at a time. Every fragment is
// submitted again, since acks may have been lost.
func (m *Machine) Hydrate(s service.Snapshot, facts *service.NodeFacts, now time.Time) {
	m.remember()
	for _, slice := range s.Slices {
		// The slice's message does not come: it was dropped, or never posted. Or it comes when the
		// slice is applied, and changes nothing then.
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

// Begin begins a turn.
func (m *Machine) Begin(now time.Time) {
	if m.trace.Seen == 0 {
		m.trace.Seen = dataplane.MomentOf(now)
	}
}

// Step takes one message. FactsChanged carries nothing; SetFacts does.
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

// Conclude ends a turn. It resolves the view and reports whether there is something
// to render: for each output View, then Fragment, then once Submitted.
func (m *Machine) Conclude(now time.Time) bool {
	if !m.dirty {
		m.trace = dataplane.Trace{}
		return false
	}
	m.dirty = false
	if m.measure(); m.excess && !m.viewed {
		m.cause, m.trace = Cause{}, dataplane.Trace{}
		return false
	}
	refacted := m.refacted && !m.excess
	m.refacted = m.refacted && m.excess // until it fits
	if m.key == service.Node {
		return refacted
	}
	view := m.resolve()
	if m.viewed && !refacted && view.Equal(m.view) && !m.outstanding() {
		m.cause, m.trace = Cause{}, dataplane.Trace{}
		return false
	}
	m.view, m.viewed = &view, true
	for i := range m.sent {
		m.sent[i].reported = false
		if d := m.drain(i); d != nil {
			d.take(m.view, now)
		}
	}
	return true
}

// resolve returns the view of the present state.
func (m *Machine) resolve() service.View {
	if m.excess {
		return m.view.Within(m.spec, m.facts)
	}
	return service.Resolve(m.key, m.spec, m.slices, m.facts)
}

// outstanding reports whether a domain still has to learn that the Service is gone,
// or back. Only there do equal views differ in their fragments.
func (m *Machine) outstanding() bool {
	for _, line := range m.sent {
		if !line.submitted || line.gone != m.gone() {
			return true
		}
	}
	return false
}

func (m *Machine) gone() bool { return m.spec == nil && m.key != service.Node }

// View returns what to render for an output: the view with what drains there, or nil
// for the node's own actor, which renders the scaffold.
func (m *Machine) View(output int) (*service.View, *service.NodeFacts) {
	if m.key == service.Node {
		return nil, m.facts
	}
	if d := m.drain(output); d != nil {
		return d.show(), m.facts
	}
	return m.view, m.facts
}

// Present returns the view that the present fragments are about, without what drains.
func (m *Machine) Present() service.View { return *m.view }

// Fragment makes a fragment from the objects rendered for an output. It returns nil
// if the domain already has this fragment.
func (m *Machine) Fragment(output int, objects []dataplane.Object) *dataplane.Fragment {
	f := dataplane.NewFragment(m.key, objects)
	line := &m.sent[output]
	f.Gone = m.gone()
	if line.submitted && line.digest == f.Digest && line.gone == f.Gone {
		return nil
	}
	m.revision = m.revision.Next()
	f.Revision = m.revision
	f.Trigger, f.Received = m.cause.Trigger, m.cause.Received
	f.Trace = m.trace
	f.Trace.Endpoints = m.endpoints(m.outputs[output].Family)
	// Keep reported: Conclude resets it for a new view, and this fragment may differ
	// only in what drains.
	*line = sent{submitted: true, digest: f.Digest, gone: f.Gone, revision: f.Revision,
		reported: line.reported}
	return f
}

// endpoints counts those that may get new connections in a family.
func (m *Machine) endpoints(family service.Family) (n uint32) {
	for i := range m.view.Ports[family] {
		n += uint32(len(m.view.Ports[family][i].Reachable()))
	}
	return n
}

// Programmed returns the present view once after it has come fully into force in a
// domain.
func (m *Machine) Programmed(output int) (service.View, bool) {
	line := &m.sent[output]
	if !m.viewed || !line.submitted || !line.settled || line.reported {
		return service.View{}, false
	}
	line.reported = true
	return *m.view, true
}

// Submitted ends the rendering. The fragments carry the cause and the trace.
func (m *Machine) Submitted() { m.cause, m.trace = Cause{}, dataplane.Trace{} }

// drain returns what drains in a domain; nil where nothing ever does.
func (m *Machine) drain(output int) *drain {
	if m.drains == nil {
		return nil
	}
	return m.drains[output]
}

// Due returns the time of the next Look; zero while nothing drains.
func (m *Machine) Due() (at time.Time) {
	for _, d := range m.drains {
		if d != nil {
			at = dataplane.Earliest(at, d.due())
		}
	}
	return at
}

// Look drops the endpoints that are past their deadline, and lets ConnectionQuery ask about
// those that are due. It does not ask before the kernel has what it was sent: until
// then new connections to a draining endpoint may still begin.
func (m *Machine) Look(output int, now time.Time) {
	if d := m.drain(output); d != nil {
		m.trace.Causes |= dataplane.CauseDrain
		d.look(now, m.sent[output].submitted && m.sent[output].settled)
	}
}

// ConnectionQuery returns the next question to put to an output's Drainer, after Conclude or
// Look. If there is news, draining endpoints wait: messages go first.
func (m *Machine) ConnectionQuery(output int, now time.Time, news bool) (ConnectionQuery, bool) {
	d := m.drain(output)
	if d == nil {
		return ConnectionQuery{}, false
	}
	return d.question(now, news)
}

// Answer takes the answer to a question.
func (m *Machine) Answer(output int, q ConnectionQuery, answer Answer, now time.Time) {
	m.drains[output].answer(q, answer, now)
}

// Changed reports whether other endpoints drain than the last View shows.
func (m *Machine) Changed(output int) bool {
	d := m.drain(output)
	return d != nil && d.changed
}

// Events returns and forgets what happened to draining endpoints, and to the size.
func (m *Machine) Events() (all []Event) {
	all, m.events = m.events, nil
	for _, d := range m.drains {
		if d != nil {
			all = append(all, d.events...)
			d.events = nil
		}
	}
	return all
}

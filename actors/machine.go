package actors

import (
	"slices"
	"strings"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// State is where an actor is in its life.
type State uint8

const (
	// Hydrating: no snapshot has been read yet; messages are ignored, the
	// snapshot will hold what they say.
	Hydrating State = iota
	// Live: the Service exists, or this is the node's own actor.
	Live
	// Draining: the Service is gone and its tombstones await their verdicts.
	Draining
	// Retired: every tombstone is applied; there is nothing more to do.
	Retired
)

// String names the state for people.
func (s State) String() string {
	return [...]string{"hydrating", "live", "draining", "retired"}[s]
}

// Machine is an actor without its goroutine: the only place that knows the
// state transitions. It belongs to one incarnation and one goroutine.
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

	view service.View
	// viewed is set once view holds something; refacted when the facts have
	// changed since it was rendered.
	viewed, refacted bool
	dirty            bool
	// stale is set when the machine has missed something and must be hydrated
	// before it concludes.
	stale  bool
	cause  Cause
	urgent bool

	// names are the actor's domains, shared by all actors; domains holds what
	// each has been told and has answered.
	names   []string
	domains []standing
	// drains has an entry per domain, nil for one that does not drain; it is
	// nil when none does.
	drains []*drain
}

// standing is what the machine remembers about one domain.
type standing struct {
	submitted bool
	digest    uint64
	gone      bool
	revision  service.Revision
	settled   bool
	// reported is set once it has been told that the present view is in force.
	reported bool
}

// NewMachine makes the machine of one incarnation for the named domains.
func NewMachine(key service.Key, incarnation uint64, domains []string) *Machine {
	return &Machine{key: key, revision: service.Revision{Incarnation: incarnation},
		names: domains, domains: make([]standing, len(domains))}
}

// drainIn lets endpoints of a family drain in a domain. The node's own actor has
// none.
func (m *Machine) drainIn(domain int, family service.Family, deadline time.Duration) {
	if m.key == service.Node {
		return
	}
	if m.drains == nil {
		m.drains = make([]*drain, len(m.names))
	}
	m.drains[domain] = &drain{family: family, deadline: deadline}
}

// drain is what drains in a domain; nil where nothing ever does.
func (m *Machine) drain(domain int) *drain {
	if m.drains == nil {
		return nil
	}
	return m.drains[domain]
}

// due is when what drains is to be looked at; zero when nothing drains.
func (m *Machine) due() (at time.Time) {
	for _, d := range m.drains {
		if d != nil {
			at = dataplane.Earliest(at, d.due())
		}
	}
	return at
}

// inForce reports whether a domain has everything that it was told.
func (m *Machine) inForce(domain int) bool {
	return m.domains[domain].submitted && m.domains[domain].settled
}

// State tells where the actor is in its life.
func (m *Machine) State() State { return m.state }

// Hydrate replaces everything by the truth as it was just read. Every fragment
// is submitted again, since verdicts may have been lost.
func (m *Machine) Hydrate(s service.Snapshot, facts *service.NodeFacts) {
	m.spec, m.facts = s.Spec, facts
	m.slices = slices.Clone(s.Slices)
	slices.SortFunc(m.slices, func(a, b *service.Slice) int { return strings.Compare(a.Name, b.Name) })
	for i := range m.domains {
		m.domains[i].submitted, m.domains[i].reported = false, false
	}
	m.dirty, m.refacted, m.stale = true, true, false
	m.settleState()
}

// SetFacts takes the facts in force; those that it has already change nothing.
func (m *Machine) SetFacts(facts *service.NodeFacts) {
	if m.state == Hydrating || facts == m.facts {
		return
	}
	m.facts, m.refacted, m.dirty = facts, true, true
}

// Stale tells that the machine has missed something: Hydrate it before the next
// Conclude.
func (m *Machine) Stale() bool { return m.stale || m.state == Hydrating }

// Step takes one message. FactsChanged says nothing by itself: SetFacts does.
func (m *Machine) Step(message Message) {
	if m.state == Hydrating {
		return
	}
	switch msg := message.(type) {
	case SpecChanged:
		// While there was no spec, nobody told us about slices.
		m.stale = m.stale || (msg.Spec != nil && (m.spec == nil || msg.Anew))
		m.spec = msg.Spec
		m.changed(msg.Cause)
	case SliceChanged:
		m.stepSlice(msg)
		m.changed(msg.Cause)
	case VerdictGiven:
		m.stepVerdict(msg)
	}
	m.settleState()
}

func (m *Machine) changed(c Cause) {
	m.cause = m.cause.or(c)
	m.dirty = true
}

func (m *Machine) stepSlice(msg SliceChanged) {
	at, found := slices.BinarySearchFunc(m.slices, msg.Name, func(s *service.Slice, name string) int {
		return strings.Compare(s.Name, name)
	})
	switch {
	case found && msg.Slice == nil:
		m.slices = slices.Delete(m.slices, at, at+1)
	case found:
		m.slices[at] = msg.Slice
	case msg.Slice != nil:
		m.slices = slices.Insert(m.slices, at, msg.Slice)
	}
}

func (m *Machine) stepVerdict(msg VerdictGiven) {
	for i := range m.domains {
		line := &m.domains[i]
		// A verdict for a revision settles every earlier one.
		if msg.Domain == m.names[i] && !msg.Quarantined && msg.Revision.Compare(line.revision) >= 0 {
			line.settled = true
		}
	}
}

// settleState moves between the named states; it is the only place that does.
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

// drained tells that every domain has applied a tombstone.
func (m *Machine) drained() bool {
	for _, line := range m.domains {
		if !line.submitted || !line.gone || !line.settled {
			return false
		}
	}
	return true
}

// Work is what has to be rendered.
type Work struct {
	// View is the Service as this node should serve it; nil for the node's own
	// actor, which renders the scaffold.
	View  *service.View
	Facts *service.NodeFacts
}

// Conclude ends a turn: it resolves what the messages have left and gives the
// work, or nil when nothing has changed that could be seen in the kernel.
func (m *Machine) Conclude() *Work {
	if !m.dirty {
		return nil
	}
	m.dirty = false
	refacted := m.refacted
	m.refacted = false
	if m.key == service.Node {
		if !refacted {
			return nil
		}
		return &Work{Facts: m.facts}
	}
	view := service.Resolve(m.key, m.spec, m.slices, m.facts)
	if m.viewed && !refacted && view.Equal(&m.view) && !m.outstanding() {
		m.cause = Cause{}
		return nil
	}
	m.urgent = m.urgent || (m.viewed && view.Removes(&m.view))
	m.view, m.viewed = view, true
	for i := range m.domains {
		m.domains[i].reported = false
	}
	return &Work{View: &m.view, Facts: m.facts}
}

// outstanding reports whether some domain has yet to be told what the Service's
// existence has come to: equal views differ in fragments only there.
func (m *Machine) outstanding() bool {
	for _, line := range m.domains {
		if !line.submitted || line.gone != m.gone() {
			return true
		}
	}
	return false
}

func (m *Machine) gone() bool { return m.spec == nil && m.key != service.Node }

// Fragment makes the fragment of one domain from rendered objects; nil when the
// domain has already been told exactly this.
func (m *Machine) Fragment(domain int, objects []dataplane.Object) *dataplane.Fragment {
	f := dataplane.NewFragment(m.key, m.view.Created, objects)
	line := &m.domains[domain]
	f.Gone = m.gone()
	if line.submitted && line.digest == f.Digest && line.gone == f.Gone {
		return nil
	}
	m.revision = m.revision.Next()
	f.Revision = m.revision
	f.Trigger, f.Received = m.cause.Trigger, m.cause.Received
	f.Urgent = m.urgent
	// What was reported stays so: Conclude says when a view is a new one, and a
	// fragment may come of what drains alone.
	*line = standing{submitted: true, digest: f.Digest, gone: f.Gone, revision: f.Revision, reported: line.reported}
	return f
}

// Programmed gives the present view if a domain has it wholly in force and this
// has not been said before.
func (m *Machine) Programmed(domain int) (service.View, bool) {
	line := &m.domains[domain]
	if !m.viewed || !line.submitted || !line.settled || line.reported {
		return service.View{}, false
	}
	line.reported = true
	return m.view, true
}

// Submitted ends the rendering: what was carried by the fragments is on its
// way.
func (m *Machine) Submitted() { m.cause, m.urgent = Cause{}, false }

// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"net/netip"
	"slices"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// followWhatLanded adds to the last applied state of an account the objects of its newest fragment that have landed
// since: to what a previous process left, and to what the kernel had when the account was frozen. Another program may
// have damaged or deleted objects of that state, and objects that serve again must stay. It does nothing for an account
// of which a fragment was applied as a whole.
func (l *Ledger) followWhatLanded(a *account) {
	if a.whole() || a.latest.Gone {
		return
	}
	switch {
	case l.layout == nil:
		a.applied = l.landedOf(a)
	case l.stands(a, true): // where a layout composes objects, a write lands as a whole or not at all
		a.applied = a.latest
	}
}

// landedOf returns the last applied state of an account with the objects of its newest fragment that have landed.
func (l *Ledger) landedOf(a *account) *dataplane.Fragment {
	m := &landedClosure{l: l, a: a, objects: byID(a.applied), newest: byID(a.latest), ahead: map[service.Frontend]bool{}}
	m.findAhead()
	for id := range m.newest {
		if m.serves(id) {
			m.take(id)
		}
	}
	for id, o := range m.newest {
		if _, frontend := l.naming.Frontend(id); !frontend && o.Kind == dataplane.Element && slices.ContainsFunc(o.Refs(), m.has) {
			m.take(id) // it is in a set that the Service has for itself
		}
	}
	if len(m.objects) == 0 {
		return a.applied
	}
	return dataplane.NewFragment(a.key, valuesOf(m.objects))
}

func valuesOf(byID map[dataplane.ID]*dataplane.Object) []dataplane.Object {
	objects := make([]dataplane.Object, 0, len(byID))
	for _, o := range byID {
		objects = append(objects, *o)
	}
	return objects
}

func byID(f *dataplane.Fragment) map[dataplane.ID]*dataplane.Object {
	objects := map[dataplane.ID]*dataplane.Object{}
	for _, o := range objectsOf(f) {
		objects[o.ID] = &o
	}
	return objects
}

// landedClosure is the last applied state of an account, while it is brought up to date.
type landedClosure struct {
	l               *Ledger
	a               *account
	objects, newest map[dataplane.ID]*dataplane.Object
	// ahead are the frontends whose endpoints may have landed before the objects that lead to them (see findAhead).
	ahead map[service.Frontend]bool
}

// findAhead finds the frontends of which no endpoint is taken. The endpoints of a large Service are written in several
// turns, and the objects that lead to them in the last one. If the last turn does not land, no packet looks up the new
// endpoints. So these are removed, and the endpoints that they replaced come back, also at a frontend that leads to the
// same chain as before: a Service is never a mixture of two states.
func (m *landedClosure) findAhead() {
	var unchanged []service.Frontend
	complete := true
	for id, o := range m.newest {
		f, is := m.l.naming.Frontend(id)
		if !is || o.Kind != dataplane.Element || m.sends(o) {
			continue
		}
		landed := m.landed(o)
		complete = complete && (landed || m.l.lacks(m.a, id))
		switch leads := len(o.Refs()) > 1; { // to more than its set
		case !leads:
		case !landed:
			m.ahead[f] = true
		case dataplane.Same(m.objects[id], o):
			unchanged = append(unchanged, f)
		}
	}
	for _, f := range unchanged {
		m.ahead[f] = !complete
	}
}

// sends reports whether an object is an endpoint.
func (m *landedClosure) sends(o *dataplane.Object) (sends bool) {
	m.l.naming.Sends(o, func(netip.AddrPort) { sends = true })
	return sends
}

// landed reports whether the kernel has an object for certain.
func (m *landedClosure) landed(o *dataplane.Object) bool {
	m.l.steps++
	e := m.l.entries.get(o.ID)
	return e != nil && !e.unsure && dataplane.Same(e.known, o)
}

func (m *landedClosure) has(id dataplane.ID) bool { return m.objects[id] != nil }

// serves reports whether an object belongs to a complete frontend or was applied already. No packet reaches
// other objects that landed.
func (m *landedClosure) serves(id dataplane.ID) bool {
	if f, frontend := m.l.naming.Frontend(id); frontend {
		return !m.ahead[f]
	}
	return m.has(id)
}

// take takes an object of the newest fragment if it has landed with all objects that it refers to. A referenced object
// that has not landed may exist as a previous process left it, and is then taken as it is. take reports whether the
// object exists, so that others may refer to it.
func (m *landedClosure) take(id dataplane.ID) bool {
	e, o := m.l.entries.get(id), m.newest[id]
	if o == nil || !m.landed(o) {
		if m.has(id) {
			return true
		}
		if e == nil {
			return false
		}
		switch shared := e.claims.sharedWith(m.a); {
		case shared && e.claims.winner().object.Kind == dataplane.Element:
			return true
		case shared:
			o = e.claims.winner().object // it stays as long as this account leads there
		case e.unsure || e.known == nil || e.known.Kind == dataplane.Element:
			return false
		default:
			o = e.known
		}
	}
	for _, ref := range refsOf(o, m.l.origin) {
		if !m.take(ref) {
			return m.has(id)
		}
	}
	m.objects[id] = o
	return true
}

// SPDX-License-Identifier: Apache-2.0

package cleaner

import (
	"slices"
	"sync"
	"time"

	"github.com/sluice-proxy/sluice/dataplane/conntrack"
	"github.com/sluice-proxy/sluice/service"
)

type (
	destination = conntrack.Destination
	flow        = conntrack.Entry
)

// table is what the Services of one family have, and what remains to be cleaned. Actors change it, also while a sweep judges
// by it: what a change concerns is for the next sweep then. Nobody waits with its lock.
//
// Invariant: claims has exactly the destinations of the pictures in services.
type table struct {
	mu       sync.Mutex
	services map[service.Key]*holding
	claims   map[destination][]*holding
	// todo is for the next sweep, which takes it.
	todo *todo
	// busy are the Services whose looks are not complete.
	busy map[*draining]bool
	// leaving are the Services with a drain deadline ahead, and deadline is the first of them or earlier; zero without one.
	leaving  map[*draining]bool
	deadline time.Time
	// closed discards further views.
	closed bool
	// steps counts what was visited. With it, tests prove that the cost of a picture is linear.
	steps int
}

// holding is what one Service has.
type holding struct {
	key service.Key
	// applied is the last picture that the kernel was reported to follow, and coming the last one of all. The kernel may
	// follow that before the report: a write takes effect before its writer returns, and the ack passes through the
	// Service's actor. A flow that begins in between is not stale, though applied says so. Otherwise its answer would be
	// lost with it.
	//
	// A sweep asks after it has seen the flow, and a view is submitted before the kernel can follow it, so each flow that
	// began by a submitted view finds it in coming, or a later one. Flows that are kept for a view are judged again when
	// that view is programmed. An actor reports no view as programmed after it has submitted another.
	applied, coming *picture
	// drain is nil without a drain deadline.
	drain *draining
}

// todo are the destinations whose flows a sweep has to judge.
type todo struct {
	// all is set if rules were missing: then any flow to a Service may be stale.
	all bool
	// flows are destinations of UDP that changed since they were last cleaned, each with the last Service that changed it.
	flows map[destination]service.Key
	// checks are destinations that are new or open to others since they were last looked at, each with its Service. All
	// ports of a ClusterIP have one check.
	checks map[destination]service.Key
	// looks are destinations of Services with a drain deadline.
	looks map[destination]look
	// fresh is set unless there are only destinations to look at again, which is not worth a report if it finds nothing.
	fresh bool
}

func newTable() *table {
	return &table{
		services: map[service.Key]*holding{}, claims: map[destination][]*holding{}, todo: newTodo(),
		busy: map[*draining]bool{}, leaving: map[*draining]bool{},
	}
}

func newTodo() *todo {
	return &todo{flows: map[destination]service.Key{}, checks: map[destination]service.Key{}, looks: map[destination]look{}}
}

// waits reports whether there is something to do.
func (w *todo) waits() bool { return w.all || len(w.flows)+len(w.checks)+len(w.looks) > 0 }

// check adds an opening of a Service.
func (w *todo) check(o *opening, by service.Key) {
	d := o.destination
	if o.internal {
		d = destination{Addr: d.Addr}
	}
	w.checks[d] = by
}

// done removes what a filter covers.
func (w *todo) done(only filter) {
	w.all = w.all && only != filter{}
	remove(w.flows, only)
	remove(w.checks, only)
	remove(w.looks, only)
}

func remove[V any](from map[destination]V, only filter) {
	for d := range from {
		if only.Covers(d) {
			delete(from, d)
		}
	}
}

// restore adds what a sweep has not done, unless it has changed since.
func (w *todo) restore(left *todo) {
	w.all, w.fresh = w.all || left.all, w.fresh || left.fresh
	add(w.flows, left.flows)
	add(w.checks, left.checks)
	add(w.looks, left.looks)
}

func add[V any](to, from map[destination]V) {
	for d, v := range from {
		if _, has := to[d]; !has {
			to[d] = v
		}
	}
}

// doubt makes the next sweep judge all flows to Services: rules were missing.
func (t *table) doubt() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.todo.all = len(t.services) > 0
	t.todo.fresh = true
}

// close discards later views.
func (t *table) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
}

// put stores a view of a Service. The kernel may follow it from now on, or does so if it is applied.
func (t *table) put(key service.Key, p *picture, applied bool, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	h := t.services[key]
	if t.closed || h == nil && len(p.openings) == 0 {
		return
	}
	if h == nil {
		h = &holding{key: key, applied: &picture{}, coming: &picture{}}
		t.services[key] = h
	}
	former := *h
	if h.coming = p; applied {
		h.applied = p
	}
	t.claim(h, &former)
	if applied {
		t.renew(h, former.applied)
	}
	t.drain(h, &former, now)
	if len(h.applied.openings)+len(h.coming.openings) == 0 {
		delete(t.services, key)
	}
}

// claim makes the claims of a Service those of its pictures.
func (t *table) claim(h, former *holding) {
	for i := range h.coming.openings {
		d := h.coming.openings[i].destination
		if claims := t.claims[d]; !slices.Contains(claims, h) {
			t.claims[d] = append(claims, h)
		}
	}
	t.withdraw(h, former.applied)
	if former.coming != former.applied {
		t.withdraw(h, former.coming)
	}
}

// withdraw removes the claims of a former picture that no present one has, and what is to be checked there.
func (t *table) withdraw(h *holding, former *picture) {
	for i := range former.openings {
		d := former.openings[i].destination
		if h.applied.at(d) != nil || h.coming.at(d) != nil {
			continue
		}
		if t.todo.checks[d] == h.key {
			delete(t.todo.checks, d)
		}
		if left := slices.DeleteFunc(t.claims[d], func(other *holding) bool { return other == h }); len(left) > 0 {
			t.claims[d] = left
		} else {
			delete(t.claims, d)
		}
	}
}

// renew makes the next sweep judge the flows that a new picture concerns. UDP flows to all destinations that the Service
// had and has are concerned, even if nothing differs: between two equal pictures, another one may have been applied briefly.
// Of other connections only those are to destinations that it did not have before, or that are open to others now.
func (t *table) renew(h *holding, old *picture) {
	now := h.applied
	ranges, denied := !slices.Equal(old.allowed, now.allowed), !slices.Equal(old.denied, now.denied)
	for i := range now.openings {
		t.steps++
		o := &now.openings[i]
		if former := old.at(o.destination); former == nil || !former.sameAs(o) || o.guarded && ranges || !o.internal && denied {
			t.todo.check(o, h.key)
			t.todo.fresh = true
		}
	}
	for _, p := range [...]*picture{old, now} {
		for i := range p.openings {
			if o := &p.openings[i]; o.hasFlows() {
				t.todo.flows[o.destination] = h.key
				t.todo.fresh = true
			}
		}
	}
}

// recheck makes the next sweep judge a destination once more, unless the Service has given it up.
func (t *table) recheck(d destination, by service.Key) {
	h := t.services[by]
	if h == nil {
		return
	}
	o := h.applied.at(d)
	if o == nil {
		return
	}
	if t.todo.check(o, by); o.hasFlows() {
		t.todo.flows[d] = by
	}
}

// owner returns the Service that has a destination, nearly always the only one; nil if there is none.
func (t *table) owner(d destination) *holding {
	for _, h := range t.claims[d] {
		if h.applied.at(d) != nil {
			return h
		}
	}
	return nil
}

// isStale judges a UDP flow to a destination of UDP.
//
//   - A flow to a serving endpoint stays, whatever happens to the others.
//   - If something serves, any other flow is stale, whether it leads to an endpoint that left
//     or to none: its next packet finds a serving one.
//   - If nothing serves, or no Service has the destination any more, a translated flow is stale, so
//     that the present rules apply to its client. No Service ever led a flow without translation
//     anywhere.
//
// On a loopback address, a flow without translation leads to a process of this host,
// which may be the proxy itself (package localport).
func (t *table) isStale(f *flow, d destination) bool {
	served := false
	for _, h := range t.claims[d] {
		if h.applied.serves(d, f.Answerer) {
			return false
		}
		o := h.applied.at(d)
		served = served || o != nil && len(o.port.serving) > 0
	}
	return f.Translated() || served && !f.To.Addr().IsLoopback()
}

// expects reports whether the last view of a Service leads a UDP flow to where it goes.
func (t *table) expects(f *flow) bool {
	for _, d := range [...]destination{f.Destination(), nodePort(f.To.Port(), f.Protocol)} {
		for _, h := range t.claims[d] {
			if h.coming.serves(d, f.Answerer) {
				return true
			}
		}
	}
	return false
}

// nodePort returns a node port, regardless of its addresses.
func nodePort(number uint16, protocol uint8) destination {
	return destination{Port: number, Protocol: protocol}
}

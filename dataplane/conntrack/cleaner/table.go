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

// table contains the pictures of the Services of one family, and the pending work. Actors change it, also during a
// sweep, which then leaves the changes to the next one. Nothing blocks while its lock is held.
//
// Invariant: claims contains exactly the destinations of the pictures in services.
type table struct {
	mu       sync.Mutex
	services map[service.Key]*holding
	claims   map[destination][]*holding
	// todo is the work for the next sweep.
	todo *todo
	// busy contains the Services with incomplete looks.
	busy map[*draining]bool
	// leaving contains the Services with a drain deadline in the future. deadline is the first of them, or an earlier
	// time; zero means none.
	leaving  map[*draining]bool
	deadline time.Time
	// closed is set when the table discards further views.
	closed bool
	// steps counts the steps of changes. Tests use it to prove that the work for a picture is linear.
	steps int
}

// holding contains the pictures of one Service.
type holding struct {
	key service.Key
	// applied is the picture of the last programmed view, and coming that of the last view. The kernel's rules may match
	// coming before it is programmed: a write takes effect before its writer returns, and the ack passes through the
	// Service's actor. A flow that begins in this time is not stale, although applied does not lead to its endpoint. If a
	// sweep deleted it, its answer would be lost.
	//
	// A sweep reads coming after it has read the flow, and a view is submitted before the rules can match it. So for each
	// flow that began by a submitted view, coming is this view or a later one. Flows that remain because of a view are
	// judged again when the view is programmed. An actor reports no view as programmed after it has submitted another one.
	applied, coming *picture
	// drain is nil without a drain deadline.
	drain *draining
}

// todo contains the destinations whose flows a sweep must judge.
type todo struct {
	// all is set if rules were missing: then any flow to a Service may be stale.
	all bool
	// flows contains the UDP destinations that changed since the last complete sweep, each with the last Service that
	// changed it.
	flows map[destination]service.Key
	// checks contains the destinations that are new, or admit other clients, since the last complete sweep, each with its
	// Service. All ports of a ClusterIP have one check.
	checks map[destination]service.Key
	// looks contains destinations of Services with a drain deadline.
	looks map[destination]look
	// fresh is set unless all destinations are repeated ones. A sweep of these is reported only if it finds something.
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

// waits reports whether any work is pending.
func (w *todo) waits() bool { return w.all || len(w.flows)+len(w.checks)+len(w.looks) > 0 }

// check adds an opening of a Service.
func (w *todo) check(o *opening, by service.Key) {
	d := o.destination
	if o.internal {
		d = destination{Addr: d.Addr}
	}
	w.checks[d] = by
}

// done removes the destinations that a filter covers.
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

// restore adds the incomplete work of a sweep, except for destinations that have new work.
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

// doubt makes the next sweep judge all flows to Services, because rules were missing.
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

// put stores a view of a Service. The kernel's rules may match it from now on. If it is applied, they match it.
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

// claim updates the claims of a Service after a change of its pictures.
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

// withdraw removes the claims of a former picture that no present one has, with their checks.
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

// renew makes the next sweep judge the flows that a new picture affects. It affects UDP flows to all former and present
// destinations of the Service, even if nothing differs: another picture may have been applied briefly between two equal
// ones. It affects other connections only to new destinations, and to those that admit other clients than before.
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

// recheck makes the next sweep judge a destination again if the Service still has it.
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

// owner returns the Service that has a destination, which is nearly always the only one, or nil.
func (t *table) owner(d destination) *holding {
	for _, h := range t.claims[d] {
		if h.applied.at(d) != nil {
			return h
		}
	}
	return nil
}

// isStale reports whether a UDP flow to a destination is stale.
//
//   - A flow to a serving endpoint is not stale.
//   - If any endpoint serves, all other flows are stale, those to removed endpoints and those to none: their next
//     packets reach a serving endpoint.
//   - If no endpoint serves, or no Service has the destination, translated flows are stale, so that the present rules
//     apply to their clients. Untranslated flows never belonged to a Service.
//
// Untranslated flows to loopback addresses lead to a process on this host, which may be the proxy itself (package
// localport).
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

// expects reports whether the last view of a Service leads a UDP flow to its endpoint.
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

// nodePort returns the destination of a node port, which has no address.
func nodePort(number uint16, protocol uint8) destination {
	return destination{Port: number, Protocol: protocol}
}

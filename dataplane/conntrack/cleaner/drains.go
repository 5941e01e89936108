// SPDX-License-Identifier: Apache-2.0

package cleaner

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/sluice-proxy/sluice/service"
)

// leaversMax bounds the endpoints of one Service that have left and whose deadline has not passed.
const leaversMax = 1000

// A Service may have a drain deadline. Connections of all protocols to an endpoint that has left it are cut at the deadline,
// which begins with the view that lacks the endpoint. Then a look at the flows of the Service's port finds those to cut. The
// same look finds flows to endpoints that no view had, and their deadline begins: the process may have started after they
// left. So the first view of a Service makes a look, too. Services without a deadline have no state here.

// draining is a Service with a drain deadline. Its leavers are endpoints that have left.
type draining struct {
	key     service.Key
	picture *picture
	leavers map[leaverKey]*leaver
	// at is the next deadline; zero without one.
	at time.Time
}

type leaverKey struct {
	portID
	endpoint netip.AddrPort
}

type leaver struct {
	since time.Time
	// due is set once its connections are to be cut, and crowded if this is because of leaversMax.
	due, crowded bool
	// cut counts them.
	cut int
}

// look asks for the flows to a destination of a port. The Service may have changed since.
type look struct {
	of   *draining
	port portID
}

// drain stores what a Service is now. Without a deadline, nothing is cut. Endpoints of a view that was submitted and then
// overtaken may have got connections, so they have left as well.
func (t *table) drain(h, former *holding, now time.Time) {
	s := h.drain
	switch {
	case s == nil && !h.applied.drains:
		return
	case !h.applied.drains:
		s.picture, s.leavers, h.drain = &picture{}, nil, nil
		t.schedule(s)
		return
	case s == nil:
		s = &draining{key: h.key, picture: &picture{}, leavers: map[leaverKey]*leaver{}}
		h.drain = s
	}
	before := s.picture
	s.picture = h.applied
	s.follow(before, h.coming, now)
	s.follow(former.coming, h.coming, now)
	t.look(s, func(id portID) bool { return before.port(id) == nil })
	t.bound(s)
	t.schedule(s)
}

// follow forgets the leavers that are back or whose port is gone, and adds those that have left, unless the next view has
// them.
func (s *draining) follow(former, next *picture, now time.Time) {
	for k := range s.leavers {
		if s.picture.port(k.portID) == nil || s.picture.leads(k.portID, k.endpoint) {
			delete(s.leavers, k)
		}
	}
	for _, old := range former.ports {
		if s.picture.port(old.portID) == nil {
			continue
		}
		for _, e := range old.targets {
			k := leaverKey{old.portID, e}
			if s.leavers[k] == nil && !s.picture.leads(old.portID, e) && !next.leads(old.portID, e) {
				s.leavers[k] = &leaver{since: now}
			}
		}
	}
}

// bound makes the oldest leavers due if there are too many. If sweeps fail for long, it forgets some: a later look
// finds them again.
func (t *table) bound(s *draining) {
	if len(s.leavers) <= leaversMax {
		return
	}
	oldest := make([]leaverKey, 0, len(s.leavers))
	for k := range s.leavers {
		oldest = append(oldest, k)
	}
	slices.SortFunc(oldest, func(a, b leaverKey) int {
		return cmp.Or(s.leavers[a].since.Compare(s.leavers[b].since), a.endpoint.Compare(b.endpoint), a.compare(b.portID))
	})
	due := map[portID]bool{}
	for i, k := range oldest[:len(oldest)-leaversMax] {
		l := s.leavers[k]
		l.due, l.crowded = true, l.crowded || !l.due
		due[k.portID] = true
		if i < len(oldest)-2*leaversMax {
			delete(s.leavers, k)
		}
	}
	t.look(s, func(id portID) bool { return due[id] })
}

// look makes the next sweep examine the flows of some ports.
func (t *table) look(s *draining, which func(portID) bool) {
	for i := range s.picture.openings {
		if o := &s.picture.openings[i]; o.port != nil && which(o.port.portID) {
			t.todo.looks[o.destination] = look{s, o.port.portID}
			t.todo.fresh = true
			t.busy[s] = true
		}
	}
}

// due makes leavers due whose deadline has passed.
func (t *table) due(now time.Time) {
	if t.deadline.IsZero() || now.Before(t.deadline) {
		return
	}
	t.deadline = time.Time{}
	for s := range t.leaving {
		if now.Before(s.at) {
			t.await(s)
			continue
		}
		due := map[portID]bool{}
		for k, l := range s.leavers {
			if !l.due && !now.Before(l.since.Add(s.picture.after)) {
				l.due, due[k.portID] = true, true
			}
		}
		t.look(s, func(id portID) bool { return due[id] })
		t.schedule(s)
	}
}

// next returns the next deadline; zero without one.
func (t *table) next() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.deadline
}

// schedule takes note of a Service's next deadline.
func (t *table) schedule(s *draining) {
	s.at = time.Time{}
	for _, l := range s.leavers {
		if at := l.since.Add(s.picture.after); !l.due && (s.at.IsZero() || at.Before(s.at)) {
			s.at = at
		}
	}
	if s.at.IsZero() {
		delete(t.leaving, s)
		return
	}
	t.leaving[s] = true
	t.await(s)
}

// await makes the next deadline that of a Service, unless it is earlier.
func (t *table) await(s *draining) {
	if t.deadline.IsZero() || s.at.Before(t.deadline) {
		t.deadline = s.at
	}
}

// drained returns the leaver to which a flow leads if the flow is to be cut, and its Service. The deadline of an endpoint
// that no view had begins.
//
// A TCP connection that has ended is in the kernel's table for a while. It is left to the kernel.
func (s *sweep) drained(f *flow) (by service.Key, l *leaver) {
	if len(s.todo.looks) == 0 || !f.Translated() {
		return by, nil
	}
	to := f.Destination()
	look, found := s.todo.looks[to]
	if !found && s.nodePort(to) {
		look, found = s.todo.looks[nodePort(to.Port, to.Protocol)]
	}
	if !found {
		return by, nil
	}
	of := look.of.picture
	if of.port(look.port) == nil || of.leads(look.port, f.Answerer) || f.Closed() {
		return by, nil
	}
	if h := s.table.services[look.of.key]; h != nil && h.coming.leads(look.port, f.Answerer) {
		return by, nil
	}
	k := leaverKey{look.port, f.Answerer}
	switch known := look.of.leavers[k]; {
	case known != nil && known.due:
		return look.of.key, known
	case known == nil && len(look.of.leavers) < leaversMax:
		look.of.leavers[k] = &leaver{since: s.began}
	}
	return by, nil
}

// finish takes note of what a sweep has looked at, and returns what it has cut.
func (t *table) finish() (all []Cut) {
	for s := range t.busy {
		left := map[portID]bool{}
		for i := range s.picture.openings {
			if o := &s.picture.openings[i]; o.port != nil && t.todo.looks[o.destination].of == s {
				left[o.port.portID] = true
			}
		}
		cut := Cut{Service: s.key, Deadline: s.picture.after}
		for k, l := range s.leavers {
			if l.due && !left[k.portID] {
				cut.add(k.endpoint, l)
				delete(s.leavers, k)
			}
		}
		if len(left) == 0 {
			delete(t.busy, s)
		}
		t.schedule(s) // the look may have found leavers
		if cut.Connections > 0 {
			slices.SortFunc(cut.Endpoints, netip.AddrPort.Compare)
			all = append(all, cut)
		}
	}
	slices.SortFunc(all, func(a, b Cut) int { return a.Service.Compare(b.Service) })
	return all
}

func (c *Cut) add(endpoint netip.AddrPort, l *leaver) {
	if l.cut == 0 {
		return
	}
	c.Connections += l.cut
	c.Endpoints = append(c.Endpoints, endpoint)
	if l.crowded {
		c.Crowded++
	}
}

// SPDX-License-Identifier: Apache-2.0

package cleaner

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/sluice-proxy/sluice/service"
)

// leaversMax is the maximum number of removed endpoints of one Service whose deadline has not passed.
const leaversMax = 1000

// A Service may have a drain deadline, at which connections of all protocols to a removed endpoint (a leaver) are cut.
// The time begins with the first view without the endpoint. At the deadline, a sweep looks at the flows of the
// Service's port, and cuts those to the endpoint. The first view of a Service causes such a look, too: if it finds
// flows to endpoints that no view contained, their time begins, because the process may have started after their
// removal. Services without a deadline have no state here.

// draining is a Service with a drain deadline, and its leavers.
type draining struct {
	key     service.Key
	picture *picture
	leavers map[leaverKey]*leaver
	// at is the next deadline; zero means none.
	at time.Time
}

type leaverKey struct {
	portID
	endpoint netip.AddrPort
}

type leaver struct {
	since time.Time
	// due is set when it is time to cut the connections, and crowded if the reason is leaversMax.
	due, crowded bool
	// cut counts the connections that were cut.
	cut int
}

// look is a request to examine the flows to a destination of a port. The Service may have changed since the request.
type look struct {
	of   *draining
	port portID
}

// drain updates the leavers of a Service after a new view. Without a deadline, nothing is cut. Endpoints that only a
// submitted view contained may have connections, so they are leavers if the next view lacks them.
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

// follow removes the leavers that are endpoints again and those of removed ports. It adds the endpoints of the former
// picture that neither the applied nor the next view contains.
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

// bound makes the oldest leavers due if there are too many. If sweeps fail for a long time, it removes some, which a
// later look finds again.
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

// look makes the next sweep examine the flows of the ports for which which returns true.
func (t *table) look(s *draining, which func(portID) bool) {
	for i := range s.picture.openings {
		if o := &s.picture.openings[i]; o.port != nil && which(o.port.portID) {
			t.todo.looks[o.destination] = look{s, o.port.portID}
			t.todo.fresh = true
			t.busy[s] = true
		}
	}
}

// due makes the leavers due whose deadline has passed.
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

// next returns the next deadline; zero means none.
func (t *table) next() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.deadline
}

// schedule updates the next deadline of a Service.
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

// await sets the next deadline of the table to that of a Service if that is earlier.
func (t *table) await(s *draining) {
	if t.deadline.IsZero() || s.at.Before(t.deadline) {
		t.deadline = s.at
	}
}

// drained returns the leaver of a flow, and its Service, if it is time to cut the flow. If the flow leads to an
// endpoint that no view contained, the time of this endpoint begins.
//
// A closed TCP connection remains in the connection table for some time. The kernel removes it.
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

// finish completes the looks of a sweep, and returns the connections that it cut.
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

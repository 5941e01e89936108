// SPDX-License-Identifier: Apache-2.0

package cleaner

import (
	"cmp"
	"container/heap"
	"net/netip"
	"slices"
	"time"

	"github.com/sluice-proxy/sluice/service"
)

// leaversMax bounds the endpoints of one Service that have left and whose deadline has not passed.
const leaversMax = 1000

// drains decides which connections are cut because their endpoint has left a Service with a drain deadline. It is
// pure and belongs to one table. Services without a deadline are not in it.
//
// The deadline of an endpoint begins with the view that lacks it. Then a look at the flows of the Service port
// finds those to cut. The same look finds flows to endpoints that no view had, and their deadline begins: the
// process may have started after they left. So the first view of a Service makes a look, too.
type drains struct {
	services map[service.Key]*draining
	// looks are the destinations whose flows the next sweep examines, and busy the Services that have some.
	looks map[destination]look
	busy  map[*draining]bool
	queue drainQueue
}

// draining is a Service with a drain deadline. Its leavers are endpoints that have left.
type draining struct {
	key     service.Key
	picture *drainPicture
	leavers map[leaverKey]*leaver
	// at is the next deadline, and place that of the Service in the queue; negative without a deadline.
	at    time.Time
	place int
}

type leaverKey struct {
	drainID
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
	port drainID
}

func newDrains() *drains {
	return &drains{services: map[service.Key]*draining{}, looks: map[destination]look{}, busy: map[*draining]bool{}}
}

// put stores what a Service is now. The picture is nil if it has no deadline or is gone: then nothing is cut.
func (d *drains) put(key service.Key, p *drainPicture, now time.Time) {
	s := d.services[key]
	switch {
	case s == nil && p == nil:
		return
	case p == nil:
		s.picture, s.leavers = &drainPicture{}, nil
		delete(d.services, key)
		d.schedule(s)
		return
	case s == nil:
		s = &draining{key: key, picture: &drainPicture{}, leavers: map[leaverKey]*leaver{}, place: -1}
		d.services[key] = s
	}
	former := s.picture
	s.picture = p
	s.follow(former, now)
	for i := range p.ports {
		if id := p.ports[i].drainID; p.unknown || former.port(id) == nil {
			d.look(s, id)
		}
	}
	d.bound(s)
	d.schedule(s)
}

// follow forgets the leavers that are back or whose port is gone, and adds those that have left.
func (s *draining) follow(former *drainPicture, now time.Time) {
	for k := range s.leavers {
		if port := s.picture.port(k.drainID); port == nil || holds(port.targets, k.endpoint) {
			delete(s.leavers, k)
		}
	}
	for i := range former.ports {
		old := &former.ports[i]
		port := s.picture.port(old.drainID)
		if port == nil {
			continue
		}
		for _, e := range old.targets {
			if k := (leaverKey{old.drainID, e}); !holds(port.targets, e) && s.leavers[k] == nil {
				s.leavers[k] = &leaver{since: now}
			}
		}
	}
}

// bound makes the oldest leavers due if there are too many. If sweeps fail for long, it forgets some: a later look
// finds them again.
func (d *drains) bound(s *draining) {
	if len(s.leavers) <= leaversMax {
		return
	}
	oldest := make([]leaverKey, 0, len(s.leavers))
	for k := range s.leavers {
		oldest = append(oldest, k)
	}
	slices.SortFunc(oldest, func(a, b leaverKey) int {
		return cmp.Or(s.leavers[a].since.Compare(s.leavers[b].since), a.endpoint.Compare(b.endpoint), a.compare(b.drainID))
	})
	for i, k := range oldest[:len(oldest)-leaversMax] {
		l := s.leavers[k]
		l.due, l.crowded = true, l.crowded || !l.due
		d.look(s, k.drainID)
		if i < len(oldest)-2*leaversMax {
			delete(s.leavers, k)
		}
	}
}

// look makes the next sweep examine the flows of a port.
func (d *drains) look(s *draining, id drainID) {
	port := s.picture.port(id)
	if port == nil {
		return
	}
	for _, to := range port.destinations {
		d.looks[to] = look{s, id}
		d.busy[s] = true
	}
}

func (d *drains) looking(s *draining, port *drainPort) bool {
	return slices.ContainsFunc(port.destinations, func(to destination) bool { return d.looks[to].of == s })
}

// due makes leavers due whose deadline has passed.
func (d *drains) due(now time.Time) {
	for len(d.queue) > 0 && !now.Before(d.queue[0].at) {
		s := d.queue[0]
		for k, l := range s.leavers {
			if !l.due && !now.Before(l.since.Add(s.picture.after)) {
				l.due = true
				d.look(s, k.drainID)
			}
		}
		d.schedule(s)
	}
}

// next returns the next deadline; zero without one.
func (d *drains) next() time.Time {
	if len(d.queue) == 0 {
		return time.Time{}
	}
	return d.queue[0].at
}

// schedule puts a Service where it belongs in the queue.
func (d *drains) schedule(s *draining) {
	s.at = time.Time{}
	for _, l := range s.leavers {
		if at := l.since.Add(s.picture.after); !l.due && (s.at.IsZero() || at.Before(s.at)) {
			s.at = at
		}
	}
	switch {
	case s.at.IsZero() && s.place >= 0:
		heap.Remove(&d.queue, s.place)
	case s.at.IsZero():
	case s.place < 0:
		heap.Push(&d.queue, s)
	default:
		heap.Fix(&d.queue, s.place)
	}
}

// judge returns the leaver to which a flow leads if the flow is to be cut, and its Service. The deadline of an
// endpoint that no view had begins. nodePort reports whether a flow to a destination asks for a node port.
//
// A TCP connection that has ended is in the kernel's table for a while. It is left to the kernel.
func (d *drains) judge(f *flow, nodePort func(destination) bool, now time.Time) (look, *leaver) {
	if len(d.looks) == 0 || !f.Translated() {
		return look{}, nil
	}
	to := f.Destination()
	l, found := d.looks[to]
	if !found && nodePort(to) {
		l, found = d.looks[destination{Port: to.Port, Protocol: to.Protocol}]
	}
	if !found {
		return look{}, nil
	}
	port := l.of.picture.port(l.port)
	if port == nil || holds(port.targets, f.Answerer) || f.Closed() {
		return look{}, nil
	}
	k := leaverKey{l.port, f.Answerer}
	switch known := l.of.leavers[k]; {
	case known != nil && known.due:
		return l, known
	case known == nil && len(l.of.leavers) < leaversMax:
		l.of.leavers[k] = &leaver{since: now}
	}
	return look{}, nil
}

// finish takes note of what a sweep has looked at, and returns what it has cut.
func (d *drains) finish() (all []Cut) {
	for s := range d.busy {
		cut := Cut{Service: s.key, Deadline: s.picture.after}
		left := map[drainID]bool{}
		for i := range s.picture.ports {
			if port := &s.picture.ports[i]; d.looking(s, port) {
				left[port.drainID] = true
			}
		}
		for k, l := range s.leavers {
			if l.due && !left[k.drainID] {
				cut.add(k.endpoint, l)
				delete(s.leavers, k)
			}
		}
		if len(left) == 0 {
			delete(d.busy, s)
		}
		d.schedule(s) // the look may have found leavers
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

// drainQueue is a heap (container/heap) of Services, the next deadline first.
type drainQueue []*draining

func (q drainQueue) Len() int           { return len(q) }
func (q drainQueue) Less(i, j int) bool { return q[i].at.Before(q[j].at) }
func (q drainQueue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].place, q[j].place = i, j
}

// Push implements container/heap.
func (q *drainQueue) Push(x any) {
	s := x.(*draining)
	s.place = len(*q)
	*q = append(*q, s)
}

// Pop implements container/heap.
func (q *drainQueue) Pop() any {
	last := len(*q) - 1
	s := (*q)[last]
	s.place = -1
	(*q)[last] = nil
	*q = (*q)[:last]
	return s
}

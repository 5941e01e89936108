// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"cmp"
	"container/heap"
	"net/netip"
	"slices"
	"time"

	"github.com/sluice-proxy/sluice/service"
)

// settle updates owned, queue and counts for the leavers that changed in a turn, and only for those.
func (g *graceful) settle() {
	services := map[service.Key]bool{}
	for l := range g.changed {
		services[l.filed], services[l.owner] = true, true
		delete(g.owned[l.filed], l)
		if len(l.since) == 0 {
			continue
		}
		if g.owned[l.owner] == nil {
			g.owned[l.owner] = map[*leavers]bool{}
		}
		g.owned[l.owner][l], l.filed = true, l.owner
	}
	for key := range services {
		g.count(key) // it may change more leavers
	}
	for l := range g.changed {
		if l.place >= 0 {
			heap.Remove(&g.queue, l.place)
		}
		if len(l.since) == 0 {
			delete(g.left, l.frontend)
			continue
		}
		l.due = g.dueOf(l)
		heap.Push(&g.queue, l)
	}
	clear(g.changed)
}

// dueOf returns the time of the next look at a virtual server.
func (g *graceful) dueOf(l *leavers) time.Time {
	at, deadline := l.next, g.deadlineOf(l.frontend)
	for _, since := range l.since {
		g.queue.steps++
		if t := since.Add(deadline); !l.failed && t.Before(at) {
			at = t
		}
	}
	return at
}

// next returns the time of the next look; zero if nothing is listed.
func (g *graceful) next() (at time.Time) {
	if len(g.queue.all) > 0 {
		at = g.queue.all[0].due
	}
	return at
}

// due removes at most most leavers that are due from the queue, the earliest first. It marks them as changed.
func (g *graceful) due(now time.Time, most int) (due []*leavers) {
	for len(due) < most && len(g.queue.all) > 0 && !g.next().After(now) {
		l := heap.Pop(&g.queue).(*leavers)
		due, g.changed[l] = append(due, l), true
	}
	return due
}

// endpoint is one endpoint of a Service, at any number of frontends.
type endpoint struct {
	addr     netip.AddrPort
	protocol service.Protocol
}

// count counts the listed endpoints of a Service. If there are too many, the oldest will be deleted.
func (g *graceful) count(key service.Key) {
	oldest := map[endpoint]time.Time{}
	for l := range g.owned[key] {
		for addr, since := range l.since {
			g.queue.steps++
			at := endpoint{addr, l.frontend.Protocol}
			if before, known := oldest[at]; !known || since.Before(before) {
				oldest[at] = since
			}
		}
	}
	if len(oldest) == 0 {
		delete(g.owned, key)
		g.counts.Delete(key)
		return
	}
	g.counts.Store(key, len(oldest)-g.bound(key, oldest))
}

// bound marks the oldest endpoints above leavingMax for deletion at the next look, and returns their number.
func (g *graceful) bound(key service.Key, since map[endpoint]time.Time) int {
	excess := len(since) - leavingMax
	if excess <= 0 {
		return 0
	}
	all := make([]endpoint, 0, len(since))
	for e := range since {
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b endpoint) int {
		return cmp.Or(since[a].Compare(since[b]), a.addr.Compare(b.addr), cmp.Compare(a.protocol, b.protocol))
	})
	var told []netip.AddrPort
	goes := make(map[endpoint]bool, excess)
	for _, e := range all[:excess] {
		if goes[e] = true; !since[e].IsZero() {
			told = append(told, e.addr)
		}
	}
	for l := range g.owned[key] {
		for addr := range l.since {
			if goes[endpoint{addr, l.frontend.Protocol}] {
				l.since[addr], g.changed[l] = time.Time{}, true
			}
		}
	}
	if told != nil {
		g.cut(Cut{Service: key, Endpoints: told, Bound: leavingMax})
	}
	return excess
}

// queue is a heap (container/heap) of leavers, the next look first.
type queue struct {
	all []*leavers
	// steps counts the leavers that a turn visits, for tests.
	steps int
}

// Len implements container/heap.
func (q *queue) Len() int { return len(q.all) }

// Less implements container/heap.
func (q *queue) Less(i, j int) bool {
	q.steps++
	a, b := q.all[i], q.all[j]
	return cmp.Or(a.due.Compare(b.due), a.frontend.Compare(b.frontend)) < 0
}

// Swap implements container/heap.
func (q *queue) Swap(i, j int) {
	q.all[i], q.all[j] = q.all[j], q.all[i]
	q.all[i].place, q.all[j].place = i, j
}

// Push implements container/heap.
func (q *queue) Push(x any) {
	l := x.(*leavers)
	l.place = len(q.all)
	q.all = append(q.all, l)
}

// Pop implements container/heap.
func (q *queue) Pop() any {
	last := len(q.all) - 1
	l := q.all[last]
	l.place, q.all[last], q.all = -1, nil, q.all[:last]
	return l
}

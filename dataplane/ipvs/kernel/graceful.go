package kernel

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/sluice-proxy/sluice/dataplane/ipvs/render"
	"github.com/sluice-proxy/sluice/dataplane/ipvs/wire"
	"github.com/sluice-proxy/sluice/service"
)

const (
	// lookMin is the time from the departure of a real server to the first question about its connections. The pause
	// doubles while connections are left, up to lookMax.
	lookMin = time.Second
	lookMax = 10 * time.Second
	// leavingMax bounds the endpoints of one Service that keep their connections.
	leavingMax = 1000
	// looksMax bounds the virtual servers that are asked about in one turn, so that a write does not wait long.
	looksMax = 64
)

// graceful lists the real servers that have left a virtual server that stays, and keep their connections. The kernel
// has them with weight 0. The ledger does not see them: it planned to delete them, and what is read leaves them out.
// The list belongs to the holder of the writer's turn. A turn costs what it changes in the list; see settle.
//
// Only the kernel remembers the list. A real server of weight 0 that is not listed (after a restart, or after a write
// with an unknown result) is read as it is. It is unwanted, so a change deletes it, and the deletion lists it.
type graceful struct {
	// deadline is that of Services that ask for none; 0 if they keep nothing.
	deadline time.Duration
	// cut and unread are those of Config.
	cut    func(Cut)
	unread func(service.Key, service.Frontend, error)
	// graces are what the kernel has no place for; see render.Grace.
	graces map[service.Frontend]render.Grace
	// left has the leavers of each virtual server, and owned those of each Service.
	left  map[service.Frontend]*leavers
	owned map[service.Key]map[*leavers]bool
	// queue has them by the time of the next look.
	queue queue
	// changed are those that settle has to file.
	changed map[*leavers]bool
	// counts has the number of endpoints (int) of each Service that has some.
	counts sync.Map
	// doubted is set if the last question had no answer.
	doubted bool
}

// leavers are the listed real servers of one virtual server.
type leavers struct {
	frontend service.Frontend
	// owner is the Service, filed the one that has them in graceful.owned.
	owner, filed service.Key
	// since is when each left; zero if it is to go at once because there are too many.
	since map[netip.AddrPort]time.Time
	// next is the time of the next question, pause the time since the last one.
	next  time.Time
	pause time.Duration
	// failed is set if a deletion failed. Deadlines that have passed wait for next.
	failed bool
	// due is the time of the next look: next, or an earlier deadline. place is that in the queue, -1 outside.
	due   time.Time
	place int
}

// Cut is about endpoints that were deleted although they may have had connections.
type Cut struct {
	Service   service.Key
	Endpoints []netip.AddrPort
	// Deadline has passed, or, if it is 0, more than Bound endpoints of the Service kept their connections.
	Deadline time.Duration
	Bound    int
}

func newGraceful(config *Config) *graceful {
	return &graceful{
		deadline: config.DrainDeadline, cut: config.Cut, unread: config.Unread,
		graces: map[service.Frontend]render.Grace{}, left: map[service.Frontend]*leavers{},
		owned: map[service.Key]map[*leavers]bool{}, changed: map[*leavers]bool{},
	}
}

// keeps reports whether a real server that leaves keeps its connections.
func (g *graceful) keeps(f service.Frontend, grace *render.Grace, addr netip.AddrPort) bool {
	switch {
	case grace.Drain.Or(g.deadline) <= 0, f.Protocol == service.SCTP:
		return false
	case f.Protocol == service.TCP:
		return true
	}
	_, found := slices.BinarySearchFunc(grace.Keeps, addr, netip.AddrPort.Compare)
	return found
}

// soften changes the requests of an edit: a real server that may keep its connections gets weight 0 instead of being
// deleted, one that comes back gets its weight, and one that may no longer stay is deleted.
func (g *graceful) soften(e *edit) {
	if e.leaves = nil; e.before == nil || e.after == nil {
		return // the virtual server is new, or goes with all connections
	}
	listed := g.listed(e.frontend)
	for i := range e.come {
		r := &e.come[i]
		if _, back := listed[r.Real.Addr]; back && r.Verb == wire.NewReal {
			r.Verb = wire.SetReal
			delete(listed, r.Real.Addr)
		}
	}
	e.goes = slices.DeleteFunc(e.goes, func(r wire.Request) bool {
		if !g.keeps(e.frontend, &e.after.Grace, r.Real.Addr) {
			return false
		}
		e.leaves = append(e.leaves, r.Real.Addr)
		return r.Real.Weight == 0 // it has it already
	})
	for i := range e.goes {
		if r := &e.goes[i]; slices.Contains(e.leaves, r.Real.Addr) {
			r.Verb, r.Real.Weight = wire.SetReal, 0
		}
	}
	for _, addr := range slices.SortedFunc(maps.Keys(listed), netip.AddrPort.Compare) {
		if !g.keeps(e.frontend, &e.after.Grace, addr) {
			e.goes = append(e.goes, wire.Request{Verb: wire.DelReal, Service: e.after.Service, Real: wire.Real{Addr: addr}})
		}
	}
}

// listed returns a copy of the leavers of a virtual server.
func (g *graceful) listed(f service.Frontend) map[netip.AddrPort]time.Time {
	if l := g.left[f]; l != nil {
		return maps.Clone(l.since)
	}
	return nil
}

// landed takes note of an edit that is in the kernel.
func (g *graceful) landed(e *edit, now time.Time) {
	if e.before == nil || e.after == nil {
		g.forget(e.frontend)
	}
	if e.after == nil {
		return
	}
	g.remember(e.frontend, e.after.Grace)
	l := g.left[e.frontend]
	if l == nil && len(e.leaves) > 0 {
		l = &leavers{frontend: e.frontend, since: map[netip.AddrPort]time.Time{}, place: -1}
		g.left[e.frontend] = l
	}
	if l == nil {
		return
	}
	l.owner, g.changed[l] = e.change.Owner, true
	for _, r := range e.after.Reals {
		delete(l.since, r.Addr)
	}
	maps.DeleteFunc(l.since, func(addr netip.AddrPort, _ time.Time) bool {
		return !g.keeps(e.frontend, &e.after.Grace, addr)
	})
	for _, addr := range e.leaves {
		l.since[addr], l.next, l.pause = now, now.Add(lookMin), lookMin
	}
}

func (g *graceful) remember(f service.Frontend, grace render.Grace) {
	if grace.Any() {
		g.graces[f] = grace
	} else {
		delete(g.graces, f)
	}
}

// forget is about a virtual server that does not exist.
func (g *graceful) forget(f service.Frontend) {
	delete(g.graces, f)
	if l := g.left[f]; l != nil {
		clear(l.since)
		g.changed[l] = true
	}
}

// seen leaves the listed real servers out of a virtual server that was read, and adds what the kernel has no place for.
// What others have deleted or changed is no longer listed.
func (g *graceful) seen(s *render.Server) {
	s.Grace = g.graces[s.Frontend]
	l := g.left[s.Frontend]
	if l == nil {
		return
	}
	stays := make(map[netip.AddrPort]time.Time, len(l.since))
	s.Reals = slices.DeleteFunc(s.Reals, func(r wire.Real) bool {
		since, listed := l.since[r.Addr]
		if listed = listed && r.Weight == 0; listed {
			stays[r.Addr] = since
		}
		return listed
	})
	if len(stays) != len(l.since) {
		l.since, g.changed[l] = stays, true
	}
}

// seenAll forgets the virtual servers that were not read.
func (g *graceful) seenAll(found map[service.Frontend]bool) {
	for f := range g.graces {
		if !found[f] {
			delete(g.graces, f)
		}
	}
	for f := range g.left {
		if !found[f] {
			g.forget(f)
		}
	}
}

func (g *graceful) deadlineOf(f service.Frontend) time.Duration {
	return g.graces[f].Drain.Or(g.deadline)
}

// look asks about the connections at the virtual servers that are due, and deletes the real servers that have none or
// are past their deadline. It reports whether an answer was lost.
func (g *graceful) look(ctx context.Context, kernel *kernelSockets, now time.Time) (lost bool) {
	var requests []wire.Request
	for _, l := range g.due(now, looksMax) {
		if ctx.Err() != nil {
			break
		}
		l.pause = min(2*l.pause, lookMax)
		l.next, l.failed = now.Add(l.pause), false
		found, err := kernel.servers.Destinations(ctx, l.frontend)
		if err != nil {
			if !g.doubted {
				g.unread(l.owner, l.frontend, err)
			}
			// The deadline has to wait: who cannot ask cannot delete.
			if g.doubted, l.failed = true, true; wire.Unknown(err) {
				return true
			}
			continue
		}
		g.doubted = false
		for _, addr := range g.done(l, found, now) {
			requests = append(requests, wire.Request{Verb: wire.DelReal, Service: wire.Service{Frontend: l.frontend}, Real: wire.Real{Addr: addr}})
		}
	}
	return g.drop(context.WithoutCancel(ctx), kernel, requests, now)
}

// done returns the leavers of a virtual server that are to be deleted. Those that are not there with weight 0 are no
// longer listed.
func (g *graceful) done(l *leavers, found []wire.Destination, now time.Time) (done []netip.AddrPort) {
	there := make(map[netip.AddrPort]wire.Destination, len(l.since))
	for _, d := range found {
		if _, listed := l.since[d.Addr]; listed && d.Weight == 0 {
			there[d.Addr] = d
		}
	}
	for _, addr := range slices.SortedFunc(maps.Keys(l.since), netip.AddrPort.Compare) {
		switch d, is := there[addr]; {
		case !is:
			delete(l.since, addr)
		case d.ActiveConns+d.InactiveConns == 0, g.late(l, addr, now):
			done = append(done, addr)
		}
	}
	return done
}

// late reports whether a leaver is past its deadline.
func (g *graceful) late(l *leavers, addr netip.AddrPort, now time.Time) bool {
	return !now.Before(l.since[addr].Add(g.deadlineOf(l.frontend)))
}

// SPDX-License-Identifier: Apache-2.0

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
	// lookMin is the time from the removal of a real server to the first request for its connections. The pause
	// doubles while it has connections, up to lookMax.
	lookMin = time.Second
	lookMax = 10 * time.Second
	// leavingMax limits the endpoints of one Service that keep their connections.
	leavingMax = 1000
	// looksMax limits the virtual servers that one turn of look requests, so that a write does not wait long.
	looksMax = 64
)

// graceful lists the leavers: real servers removed from an existing virtual server, which keep their connections. In
// the kernel they have weight 0. The ledger does not contain them: it planned their deletion, and Read omits them.
// Only the holder of the writer's turn may use the list. A turn's cost depends on its changes in the list; see settle.
//
// The list is not stored elsewhere. Read returns an unlisted real server of weight 0 (after a restart, or after a write
// with an unknown result). It is not desired, so a change deletes it, and the deletion lists it.
type graceful struct {
	// deadline is the default for Services without one; 0 if their endpoints keep no connections.
	deadline time.Duration
	// cut and unread are those of Config.
	cut    func(Cut)
	unread func(service.Key, service.Frontend, error)
	// graces are the parts of virtual servers that the kernel cannot store; see render.Grace.
	graces map[service.Frontend]render.Grace
	// left has the leavers of each virtual server, and owned those of each Service.
	left  map[service.Frontend]*leavers
	owned map[service.Key]map[*leavers]bool
	// queue has the leavers by the time of their next look.
	queue queue
	// changed are the leavers for which settle has to update owned, queue and counts.
	changed map[*leavers]bool
	// counts has the number of leaving endpoints (int) of each Service that has some.
	counts sync.Map
	// doubted is set if the last request for connections failed.
	doubted bool
}

// leavers are the listed real servers of one virtual server.
type leavers struct {
	frontend service.Frontend
	// owner is the Service. filed is the Service under which graceful.owned has these leavers.
	owner, filed service.Key
	// since is when each was removed; zero if it is to be deleted immediately because there are too many.
	since map[netip.AddrPort]time.Time
	// next is the time of the next request, pause the time between the last one and the next.
	next  time.Time
	pause time.Duration
	// failed is set if a request or deletion failed. Expired deadlines then wait for next.
	failed bool
	// due is the time of the next look: next, or an earlier deadline. place is the index in the queue, -1 if absent.
	due   time.Time
	place int
}

// Cut reports endpoints that were deleted although they may have had connections.
type Cut struct {
	Service   service.Key
	Endpoints []netip.AddrPort
	// Deadline is the expired deadline. If it is 0, more than Bound endpoints of the Service kept their connections.
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

// keeps reports whether a removed real server keeps its connections.
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
// deleted, a leaver that is desired again gets its weight, and a leaver that may no longer stay is deleted.
func (g *graceful) soften(e *edit) {
	if e.leaves = nil; e.before == nil || e.after == nil {
		return // the virtual server is new, or is deleted with all connections
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
		return r.Real.Weight == 0 // it already has weight 0
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

// landed updates the list after an edit was written.
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

// forget removes everything about a virtual server that does not exist.
func (g *graceful) forget(f service.Frontend) {
	delete(g.graces, f)
	if l := g.left[f]; l != nil {
		clear(l.since)
		g.changed[l] = true
	}
}

// seen removes the leavers from a virtual server that was read, and adds its Grace, which the kernel cannot store.
// Leavers that another program deleted or changed are no longer listed.
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

// seenAll forgets the virtual servers that a Read did not find.
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

// look requests the connections of the virtual servers that are due, and deletes the leavers that have none or are past
// their deadline. It reports whether an answer was lost.
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
			// Deadlines have to wait for the next look: if a request fails, so would a deletion.
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

// done returns the leavers of a virtual server that are to be deleted. Leavers that the kernel does not have, or not
// with weight 0, are no longer listed.
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

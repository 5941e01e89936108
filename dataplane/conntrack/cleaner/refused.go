// SPDX-License-Identifier: Apache-2.0

package cleaner

import (
	"context"
	"net/netip"
	"slices"

	"github.com/sluice-proxy/sluice/service"
)

// The rules of nftables mode judge a connection once, when it begins (ADR 6). A client that
// began before there was a rule for its destination would not be refused as long as it goes
// on: it sends datagrams without an answer, or the same SYN again. The same is true of a
// client that the source ranges of a Service no longer allow, or that a Service denies. So these connections are
// deleted, and their next packets judged.
//
// Only unanswered connections are deleted. Answered ones go on, as with kube-proxy, whose
// rules judge each packet until there is an answer.

// check is a destination to look at, with the clients that it is open to.
type check struct {
	by service.Key
	// allowed is nil if all sources are allowed. Denied sources are not.
	allowed, denied []netip.Prefix
}

// opening is a destination of a Service.
type opening struct {
	destination
	// guarded is set if the Service's source ranges are about it, and internal if its address is a ClusterIP. Those are
	// openings without a port as well.
	guarded, internal bool
	// lent is set if others may answer there: packets are left to them for want of an endpoint, and the rules do not see
	// these connections again, or an endpoint has the same address and port.
	lent bool
}

// openingsOf returns the destinations of ports, sorted, each once. If several exposures have a destination, the first
// one decides. A Service may have very many.
func (p *flowPicture) openingsOf(ctx context.Context, ports []service.PortView) (all []opening) {
	for i := range ports {
		if ctx.Err() != nil {
			return all
		}
		own := endpointsAtFrontends(&ports[i])
		for e := range ports[i].Exposures {
			o := opening{
				destination: destination{Addr: e.Addr, Port: e.Port, Protocol: e.Protocol.Number()}, guarded: len(e.Allowed) > 0, internal: e.Kind == service.ClusterIP,
				lent: e.Refusal == service.NoEndpointsPass || e.Kind != service.ClusterIP && own[e.Addr],
			}
			if all = append(all, o); o.internal {
				all = append(all, opening{destination: destination{Addr: e.Addr}, internal: true})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b opening) int {
		p.steps++
		return a.Compare(b.destination)
	})
	return slices.Clip(slices.CompactFunc(all, func(a, b opening) bool { return a.destination == b.destination }))
}

// endpointsAtFrontends returns the addresses at which an endpoint has the number of the port itself.
func endpointsAtFrontends(view *service.PortView) map[netip.Addr]bool {
	if len(view.LoadBalancerVIPs)+len(view.ExternalIPs) == 0 {
		return nil
	}
	own := map[netip.Addr]bool{}
	for _, e := range view.Serving {
		if at := e.AddrPort; at.Port() == view.Port {
			own[at.Addr()] = true
		}
	}
	return own
}

// putOpenings makes the destinations that a Service did not have before, or that are open to
// others now, subject to checks.
func (t *table) putOpenings(key service.Key, p *flowPicture) {
	old, had := t.openings[key]
	t.claim(old.openings, -1)
	t.claim(p.openings, +1)
	if len(p.openings) == 0 {
		delete(t.openings, key)
		return
	}
	now := destinations{p.openings, p.allowed, p.denied}
	ranges, denied := !slices.Equal(old.allowed, p.allowed), !slices.Equal(old.denied, p.denied)
	all := p.reopened || !had
	left := old.openings // both are sorted
	for _, o := range p.openings {
		for len(left) > 0 && left[0].Compare(o.destination) < 0 {
			t.steps++
			left = left[1:]
		}
		t.steps++
		known := len(left) > 0 && left[0] == o
		if all || !known || o.guarded && ranges || !o.internal && denied {
			t.check(key, o, &now)
		}
	}
	t.openings[key] = now
}

// destinations are the destinations of one Service.
type destinations struct {
	openings []opening
	// allowed are the sources that may reach those that are guarded, denied those that may not reach
	// external ones.
	allowed, denied []netip.Prefix
}

// at returns the opening at a destination.
func (of *destinations) at(d destination) (o opening, has bool) {
	i, has := slices.BinarySearchFunc(of.openings, d, func(o opening, d destination) int { return o.Compare(d) })
	if has {
		o = of.openings[i]
	}
	return o, has
}

// claim counts the Services that have a destination.
func (t *table) claim(all []opening, change int) {
	for _, o := range all {
		if t.claims[o.destination] += change; t.claims[o.destination] == 0 {
			delete(t.claims, o.destination)
		}
	}
}

func (t *table) check(by service.Key, o opening, of *destinations) {
	c := check{by: by}
	if o.guarded {
		c.allowed = of.allowed
	}
	if !o.internal {
		c.denied = of.denied
	} else {
		o.destination = destination{Addr: o.Addr} // all ports of a ClusterIP have one check
	}
	t.checks[o.destination] = c
}

// subject returns the check that applies to a connection, if it is unanswered and its destination
// has a check. nodePort reports whether a flow to a destination asks for a node port.
func (t *table) subject(f *flow, nodePort func(destination) bool) (c check, subject bool) {
	if f.Replied || len(t.checks) == 0 {
		return check{}, false
	}
	to := f.Destination()
	if c, subject = t.checks[to]; !subject {
		c, subject = t.checks[destination{Addr: to.Addr}]
	}
	if !subject && !to.Addr.IsLoopback() && nodePort(to) {
		c, subject = t.checks[destination{Port: to.Port, Protocol: to.Protocol}]
	}
	return c, subject
}

// admits reports whether a client is allowed.
func (c *check) admits(client netip.Addr) bool {
	in := func(p netip.Prefix) bool { return p.Contains(client) }
	return (len(c.allowed) == 0 || slices.ContainsFunc(c.allowed, in)) && !slices.ContainsFunc(c.denied, in)
}

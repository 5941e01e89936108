// SPDX-License-Identifier: Apache-2.0

package conntrack

import (
	"cmp"
	"context"
	"net/netip"
	"slices"

	"github.com/sluice-proxy/sluice/service"
)

// The rules of nftables mode judge a connection once, when it begins (ADR 6). If a connection began before there was a
// rule for its destination, the rules do not reject it while its client keeps sending datagrams without an answer, or
// the same SYN. The same is true of a client that the source ranges of a Service no longer allow, or that a Service
// denies. A sweep therefore deletes these connections, so that the rules judge their next packets.
//
// Sweeps delete only unanswered connections of this kind. Answered ones continue, as with
// kube-proxy, whose rules judge each packet until there is an answer.

// destination is an address, port and protocol at which rules may reject a connection. The address is
// invalid for a node port. Protocol and port are 0 for a ClusterIP as a whole, because the rules serve
// or reject connections to each of its ports.
type destination struct {
	addr     netip.Addr
	port     uint16
	protocol uint8
}

// check is a destination to look at, with the clients that it is open to.
type check struct {
	by service.Key
	// allowed is nil if all sources are allowed. Denied sources are not.
	allowed, denied []netip.Prefix
}

// opening is a destination of a Service.
type opening struct {
	destination
	// guarded is set if the Service's source ranges apply to it, and internal if its address is a ClusterIP. Each
	// ClusterIP also has an opening without a port.
	guarded, internal bool
	// lent is set if something other than the Service may answer there: the rules let packets pass because there is no
	// endpoint, and do not see these connections again, or a UDP endpoint has the same address and port.
	lent bool
}

// openingsOf returns the destinations of ports, sorted, each once. A load balancer VIP that is also an
// external IP is guarded. The list may be very long, and is incomplete if the context ends.
func (p *flowPicture) openingsOf(ctx context.Context, ports []service.PortView) (all []opening) {
	for i := range ports {
		if ctx.Err() != nil {
			return all
		}
		view := &ports[i]
		number := view.Protocol.Number()
		passes := view.Unserved() == service.NoEndpointsPass
		if view.ClusterIP.IsValid() {
			all = append(all, opening{destination: destination{addr: view.ClusterIP}, internal: true}, opening{
				destination: destination{view.ClusterIP, view.Port, number}, internal: true, lent: passes && !view.ServesInternal(),
			})
		}
		passes = passes && !view.ServesExternal()
		own := endpointsAtFrontends(view)
		for _, a := range view.LoadBalancerVIPs {
			all = append(all, opening{
				destination: destination{a, view.Port, number}, guarded: len(view.SourceRanges) > 0, lent: passes || own[a],
			})
		}
		for _, a := range view.ExternalIPs {
			all = append(all, opening{destination: destination{a, view.Port, number}, lent: passes || own[a]})
		}
		if view.NodePort != 0 {
			all = append(all, opening{destination: destination{port: view.NodePort, protocol: number}, lent: passes})
		}
	}
	slices.SortFunc(all, func(a, b opening) int {
		p.steps++
		return cmp.Or(a.compare(b.destination), guardedFirst(a, b))
	})
	return slices.Clip(slices.CompactFunc(all, func(a, b opening) bool { return a.destination == b.destination }))
}

// endpointsAtFrontends returns the addresses of the UDP endpoints whose port number is that of the Service port.
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

func guardedFirst(a, b opening) int {
	switch {
	case a.guarded == b.guarded:
		return 0
	case a.guarded:
		return -1
	default:
		return 1
	}
}

// compare orders destinations. Any total order would do.
func (d destination) compare(other destination) int {
	return cmp.Or(d.addr.Compare(other.addr), cmp.Compare(d.port, other.port), cmp.Compare(d.protocol, other.protocol))
}

// putOpenings adds checks for the destinations of a Service that are new, or whose allowed or
// denied sources changed.
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
		for len(left) > 0 && left[0].compare(o.destination) < 0 {
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
	// allowed are the sources that may reach guarded openings, and denied those that may not reach
	// external ones.
	allowed, denied []netip.Prefix
}

// at returns the opening at a destination.
func (of *destinations) at(d destination) (o opening, has bool) {
	i, has := slices.BinarySearchFunc(of.openings, d, func(o opening, d destination) int { return o.compare(d) })
	if has {
		o = of.openings[i]
	}
	return o, has
}

// claim adds a change to the number of Services that have each of some destinations.
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
		o.destination = destination{addr: o.addr} // all ports of a ClusterIP have one check
	}
	t.checks[o.destination] = c
}

// subject returns the check that applies to a connection, if it is unanswered and its destination
// has a check. nodePort reports whether a flow to a destination asks for a node port.
func (t *table) subject(f *flow, nodePort func(destination) bool) (c check, subject bool) {
	if f.replied || len(t.checks) == 0 {
		return check{}, false
	}
	to := f.to()
	if c, subject = t.checks[to]; !subject {
		c, subject = t.checks[destination{addr: to.addr}]
	}
	if !subject && !to.addr.IsLoopback() && nodePort(to) {
		c, subject = t.checks[destination{port: to.port, protocol: to.protocol}]
	}
	return c, subject
}

// admits reports whether a client is allowed.
func (c *check) admits(client netip.Addr) bool {
	in := func(p netip.Prefix) bool { return p.Contains(client) }
	return (len(c.allowed) == 0 || slices.ContainsFunc(c.allowed, in)) && !slices.ContainsFunc(c.denied, in)
}

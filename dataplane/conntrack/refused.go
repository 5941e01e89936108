package conntrack

import (
	"cmp"
	"context"
	"net/netip"
	"slices"

	"github.com/sluice-proxy/sluice/service"
)

// The rules of nftables mode judge a connection once, when it begins (ADR 32). A client that
// began before there was a rule for its destination would not be refused as long as it goes
// on: it sends datagrams without an answer, or the same SYN again. The same is true of a
// client that the source ranges of a Service no longer allow, or that a Service denies. So these connections are
// deleted, and their next packets judged.
//
// Only unanswered connections are deleted. Answered ones go on, as with kube-proxy, whose
// rules judge each packet until there is an answer.

// destination is where rules may refuse a connection of any protocol. The address is
// invalid for a node port. Protocol and port are 0 for a ClusterIP, all of whose ports the
// rules refuse or serve.
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
	// guarded is set if the Service's source ranges are about it.
	guarded bool
}

// openingsOf returns the destinations of ports, sorted, each once. A load balancer VIP that is an
// external IP as well is guarded. A Service may have very many.
func (p *flowPicture) openingsOf(ctx context.Context, ports []service.PortView) (all []opening) {
	for i := range ports {
		if ctx.Err() != nil {
			return all
		}
		view := &ports[i]
		number := view.Protocol.Number()
		if view.ClusterIP.IsValid() {
			all = append(all, opening{destination{addr: view.ClusterIP}, false})
		}
		for _, a := range view.LoadBalancerVIPs {
			all = append(all, opening{destination{a, view.Port, number}, len(view.SourceRanges) > 0})
		}
		for _, a := range view.ExternalIPs {
			all = append(all, opening{destination{a, view.Port, number}, false})
		}
		if view.NodePort != 0 {
			all = append(all, opening{destination{port: view.NodePort, protocol: number}, false})
		}
	}
	slices.SortFunc(all, func(a, b opening) int {
		p.steps++
		return cmp.Or(a.compare(b.destination), guardedFirst(a, b))
	})
	return slices.Clip(slices.CompactFunc(all, func(a, b opening) bool { return a.destination == b.destination }))
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

// compare orders destinations in any way.
func (d destination) compare(other destination) int {
	return cmp.Or(d.addr.Compare(other.addr), cmp.Compare(d.port, other.port), cmp.Compare(d.protocol, other.protocol))
}

// putOpenings makes the destinations that a Service did not have before, or that are open to
// others now, subject to checks.
func (t *table) putOpenings(key service.Key, p *flowPicture) {
	old, had := t.openings[key]
	if len(p.openings) == 0 {
		delete(t.openings, key)
		return
	}
	now := destinations{p.openings, p.allowed, p.denied, p.passing}
	ranges, denied := !slices.Equal(old.allowed, p.allowed), !slices.Equal(old.denied, p.denied)
	all := p.reopened || !had || old.passing != p.passing
	left := old.openings // both are sorted
	for _, o := range p.openings {
		for len(left) > 0 && left[0].compare(o.destination) < 0 {
			t.steps++
			left = left[1:]
		}
		t.steps++
		known := len(left) > 0 && left[0] == o
		if all || !known || o.guarded && ranges || o.external() && denied {
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
	// passing is how many ports leave packets to others for want of an endpoint. These packets begin connections
	// that the rules do not see again.
	passing int
}

// external reports whether it is no ClusterIP.
func (d destination) external() bool { return d.port != 0 }

func (t *table) check(by service.Key, o opening, of *destinations) {
	c := check{by: by}
	if o.guarded {
		c.allowed = of.allowed
	}
	if o.external() {
		c.denied = of.denied
	}
	t.checks[o.destination] = c
}

// subject returns the check that applies to a connection, if it is unanswered and its destination
// has a check.
func (t *table) subject(f *flow, onNode func(netip.Addr) bool) (c check, subject bool) {
	if f.replied || len(t.checks) == 0 {
		return check{}, false
	}
	to := f.to()
	if c, subject = t.checks[to]; !subject {
		c, subject = t.checks[destination{addr: to.addr}]
	}
	if !subject && !to.addr.IsLoopback() && onNode(to.addr) {
		c, subject = t.checks[destination{port: to.port, protocol: to.protocol}]
	}
	return c, subject
}

// admits reports whether a client is allowed.
func (c *check) admits(client netip.Addr) bool {
	in := func(p netip.Prefix) bool { return p.Contains(client) }
	return (len(c.allowed) == 0 || slices.ContainsFunc(c.allowed, in)) && !slices.ContainsFunc(c.denied, in)
}

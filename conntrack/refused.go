package conntrack

import (
	"net/netip"
	"slices"

	"github.com/sluice-proxy/sluice/service"
)

// The rules of nftables mode judge a connection once, when it begins (ADR 32). A client that
// began before there was a rule for its destination would not be refused as long as it goes
// on: it sends datagrams that nobody answers, or the same SYN again. The same is true of a
// client that the source ranges of a Service no longer allow. So these connections are
// deleted, and their next packets judged.
//
// Only connections that nobody has answered are. The others go on, as with kube-proxy, whose
// rules judge each packet until there is an answer.

// destination is where rules may refuse a connection, of whatever protocol. The address is
// invalid for a node port. Protocol and port are 0 for a ClusterIP, all of whose ports the
// rules refuse or serve.
type destination struct {
	addr     netip.Addr
	port     uint16
	protocol uint8
}

// opening is a destination of a Service.
type opening struct {
	destination
	// guarded is set if the Service's source ranges are about it.
	guarded bool
}

// check is a destination to look at, with the clients that it is open to.
type check struct {
	by service.Key
	// allowed is nil if everybody is.
	allowed []netip.Prefix
}

// openingsOf returns the destinations of a port. A load balancer VIP that is an external IP as
// well is guarded.
func openingsOf(all []opening, view *service.PortView) []opening {
	add := func(d destination, guarded bool) {
		for i := range all {
			if all[i].destination == d {
				all[i].guarded = all[i].guarded || guarded
				return
			}
		}
		all = append(all, opening{d, guarded})
	}
	number := view.Protocol.Number()
	add(destination{addr: view.ClusterIP}, false)
	for _, a := range view.LoadBalancerVIPs {
		add(destination{a, view.Port, number}, len(view.SourceRanges) > 0)
	}
	for _, a := range view.ExternalIPs {
		add(destination{a, view.Port, number}, false)
	}
	if view.NodePort != 0 {
		add(destination{port: view.NodePort, protocol: number}, false)
	}
	return all
}

// putOpenings makes the destinations that a Service did not have before, or that are open to
// others now, subject to checks.
func (t *table) putOpenings(key service.Key, p *picture) {
	old, had := t.openings[key]
	if len(p.openings) == 0 {
		delete(t.openings, key)
		return
	}
	ranges := !slices.Equal(old.allowed, p.allowed)
	for _, o := range p.openings {
		if p.reopened || !had || !slices.Contains(old.openings, o) || o.guarded && ranges {
			t.check(key, o, p.allowed)
		}
	}
	t.openings[key] = openings{p.openings, p.allowed}
}

// openings are the destinations of one Service.
type openings struct {
	openings []opening
	// allowed are the sources that may reach those that are guarded.
	allowed []netip.Prefix
}

func (t *table) check(by service.Key, o opening, allowed []netip.Prefix) {
	c := check{by: by}
	if o.guarded {
		c.allowed = allowed
	}
	t.checks[o.destination] = c
}

// subject returns the check that a connection is subject to: nobody has answered it, and its
// destination is to be looked at.
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
	return len(c.allowed) == 0 || slices.ContainsFunc(c.allowed, func(p netip.Prefix) bool { return p.Contains(client) })
}

// SPDX-License-Identifier: Apache-2.0

package cleaner

import (
	"cmp"
	"context"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/service"
)

// picture contains the parts of a view of one Service that the cleaner needs, for one family. It is immutable.
type picture struct {
	// openings are the destinations of the Service, sorted, without duplicates.
	openings []opening
	// ports are the ports of openings, sorted by their identities.
	ports []*port
	// allowed are the sources that may reach guarded openings; nil means all. denied are the sources that may not reach
	// external openings.
	allowed, denied []netip.Prefix
	// drains is set if the Service has a drain deadline, which is after.
	drains bool
	after  time.Duration
	// steps counts the steps to create the picture; see table.
	steps int
}

// opening is a destination of a Service. Because the rules serve or reject all ports of a ClusterIP, the ClusterIP
// without a port is an opening, too.
type opening struct {
	destination
	// port is nil if the endpoints are irrelevant: for a ClusterIP without a port, and for other protocols than UDP
	// without a drain deadline.
	port *port
	// guarded is set if the Service's source ranges apply, and internal if the address is a ClusterIP.
	guarded, internal bool
	// lent is set if others may answer at the destination: the rules pass packets on because there is no endpoint, and do
	// not see these connections again, or an endpoint has the same address and port.
	lent bool
}

// portID identifies a port of a Service, whose name may change.
type portID struct {
	protocol uint8
	number   uint16
}

func (i portID) compare(other portID) int {
	return cmp.Or(cmp.Compare(i.protocol, other.protocol), cmp.Compare(i.number, other.number))
}

// port contains the endpoints of one port of a Service, sorted by address and port. All openings of the port lead to
// them.
type port struct {
	portID
	// serving are the endpoints to which UDP flows may continue.
	serving []netip.AddrPort
	// targets are the endpoints that get new connections, or would get them if they answered. It is nil without a drain
	// deadline. It contains the endpoints of both traffic policies, because clients on the node use all endpoints where
	// other clients may use only local ones.
	targets []netip.AddrPort
}

// newPicture reduces a view to a picture, which contains the drain deadline if drains is set. If the context ends, the
// picture is incomplete: a Service may have very many openings.
func newPicture(ctx context.Context, family service.Family, view *service.View, drains bool) *picture {
	ports := view.Ports[family]
	p := &picture{drains: drains && view.Drain.Limited, after: view.Drain.After}
	for i := range ports {
		if ctx.Err() != nil {
			return p
		}
		p.open(&ports[i])
	}
	if len(ports) > 0 {
		p.allowed, p.denied = ports[0].AllowedSources(), ports[0].DenyRanges
	}
	p.sort()
	p.drains = p.drains && len(p.openings) > 0
	return p
}

// open adds the openings of a port.
func (p *picture) open(view *service.PortView) {
	protocol := view.Protocol.Number()
	var at *port
	if protocol == unix.IPPROTO_UDP || p.drains {
		at = &port{portID: portID{protocol, view.Port}, serving: sorted(view.Serving)}
		p.ports = append(p.ports, at)
	}
	if p.drains {
		at.targets = sorted(slices.Concat(view.Reachable(), view.Avoided))
	}
	own := endpointsAtFrontends(view)
	for e := range view.Exposures {
		o := opening{
			destination: destination{Addr: e.Addr, Port: e.Port, Protocol: protocol}, port: at,
			guarded: len(e.Allowed) > 0, internal: e.Kind == service.ClusterIP,
			lent: e.Refusal == service.NoEndpointsPass || e.Kind != service.ClusterIP && own[e.Addr],
		}
		if p.openings = append(p.openings, o); o.internal {
			p.openings = append(p.openings, opening{destination: destination{Addr: e.Addr}, internal: true})
		}
	}
}

// sort sorts openings and ports, and removes duplicate openings: of several exposures with one destination, the first
// decides.
func (p *picture) sort() {
	slices.SortStableFunc(p.openings, func(a, b opening) int {
		p.steps++
		return a.Compare(b.destination)
	})
	p.openings = slices.Clip(slices.CompactFunc(p.openings, func(a, b opening) bool { return a.destination == b.destination }))
	slices.SortFunc(p.ports, func(a, b *port) int { return a.compare(b.portID) })
}

// endpointsAtFrontends returns the addresses of endpoints with the same port number as the Service.
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

// at returns the opening at a destination, or nil.
func (p *picture) at(d destination) *opening {
	i, has := slices.BinarySearchFunc(p.openings, d, func(o opening, d destination) int { return o.Compare(d) })
	if !has {
		return nil
	}
	return &p.openings[i]
}

// port returns a port, or nil.
func (p *picture) port(id portID) *port {
	i, has := slices.BinarySearchFunc(p.ports, id, func(port *port, id portID) int { return port.compare(id) })
	if !has {
		return nil
	}
	return p.ports[i]
}

// serves reports whether UDP flows to a destination may continue to an endpoint.
func (p *picture) serves(d destination, endpoint netip.AddrPort) bool {
	o := p.at(d)
	return o != nil && o.port != nil && holds(o.port.serving, endpoint)
}

// leads reports whether new connections to a port may go to an endpoint.
func (p *picture) leads(id portID, endpoint netip.AddrPort) bool {
	port := p.port(id)
	return port != nil && holds(port.targets, endpoint)
}

// sameAs reports whether the rules judge clients in the same way at two openings with the same destination.
func (o *opening) sameAs(other *opening) bool {
	return o.guarded == other.guarded && o.internal == other.internal && o.lent == other.lent
}

// hasFlows reports whether flows to the opening can become stale, which applies to UDP.
func (o *opening) hasFlows() bool { return o.port != nil && o.Protocol == unix.IPPROTO_UDP }

// admits reports whether a client may reach an opening.
func (p *picture) admits(o *opening, client netip.Addr) bool {
	in := func(p netip.Prefix) bool { return p.Contains(client) }
	return (!o.guarded || len(p.allowed) == 0 || slices.ContainsFunc(p.allowed, in)) && (o.internal || !slices.ContainsFunc(p.denied, in))
}

// holds reports whether sorted endpoints contain an endpoint.
func holds(endpoints []netip.AddrPort, e netip.AddrPort) bool {
	_, found := slices.BinarySearchFunc(endpoints, e, netip.AddrPort.Compare)
	return found
}

func sorted(endpoints []service.Endpoint) []netip.AddrPort {
	if len(endpoints) == 0 {
		return nil
	}
	all := make([]netip.AddrPort, len(endpoints))
	for i, e := range endpoints {
		all[i] = e.AddrPort
	}
	slices.SortFunc(all, netip.AddrPort.Compare)
	return all
}

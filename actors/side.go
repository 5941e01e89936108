package actors

import (
	"net/netip"
	"slices"

	"github.com/sluice-proxy/sluice/service"
)

// trafficSide is where connections to a service port come from. Each side has separate
// frontends and endpoints: an endpoint may leave one and stay in the other.
type trafficSide uint8

const (
	// inside is the ClusterIP.
	inside trafficSide = iota
	// outside is everything else: node port, External IPs, load balancers.
	outside
	sideCount
)

// sides is a set of them.
type sides uint8

func (s trafficSide) bit() sides { return 1 << s }

// drains reports whether endpoints of a port can drain on this side. SCTP endpoints are
// removed immediately, as with kube-proxy.
func (s trafficSide) drains(p *service.PortView) bool {
	return p.Protocol != service.SCTP && (s == inside || p.ExternallyAccessible())
}

// keeps reports whether an endpoint that gets no new connections may keep those that it
// has. A TCP connection may last until it ends. A UDP flow has no visible end: it may
// last as long as the endpoint serves, for example while its pod terminates.
func keeps(p *service.PortView, e service.Endpoint) bool {
	return p.Protocol == service.TCP || holds(p.Serving, e)
}

// targets returns the endpoints that get new connections on this side. Where the Local
// policy finds none, a backend may use those of the Cluster policy; an endpoint that
// leaves in that way drains as well.
func (s trafficSide) targets(p *service.PortView) []service.Endpoint {
	local := p.InternalLocal
	if s == outside {
		local = p.ExternalLocal
	}
	switch {
	case !s.drains(p):
		return nil
	case local && len(p.Local) > 0:
		return p.Local
	default:
		return p.Cluster
	}
}

// departed returns the endpoints that left one side of a service port and can drain
// there. On a side that is gone, nothing drains.
func departed(s trafficSide, before, now *service.PortView) []service.Endpoint {
	if !s.drains(now) {
		return nil
	}
	gone := without(s.targets(before), s.targets(now))
	return slices.DeleteFunc(gone, func(e service.Endpoint) bool { return !keeps(now, e) })
}

// leaverKey identifies a leaver: the position of its service port, and its address.
type leaverKey struct {
	port int
	addr netip.AddrPort
}

// index maps the leavers to their positions.
func (d *drain) index() map[leaverKey]int {
	index := make(map[leaverKey]int, len(d.leavers))
	for i, l := range d.leavers {
		index[leaverKey{l.port, l.endpoint.AddrPort}] = i
	}
	return index
}

// survivor returns the new position of a service port that was at position i, or -1 if
// it is gone. The kernel knows it by protocol and port, so its name may change; if its
// port has changed, its node port may still be the same.
func survivor(ports []service.PortView, i int, wanted *service.PortView) int {
	same := func(p service.PortView) bool {
		return p.Protocol == wanted.Protocol && p.Port == wanted.Port
	}
	if i < len(ports) && same(ports[i]) {
		return i
	}
	if at := slices.IndexFunc(ports, same); at >= 0 {
		return at
	}
	return slices.IndexFunc(ports, func(p service.PortView) bool {
		return p.Protocol == wanted.Protocol && p.NodePort == wanted.NodePort && p.NodePort != 0
	})
}

// without returns the endpoints of one sorted set whose addresses another one lacks.
func without(set, other []service.Endpoint) (rest []service.Endpoint) {
	if len(set) > 0 && len(set) == len(other) && &set[0] == &other[0] {
		return nil
	}
	for _, e := range set {
		for len(other) > 0 && other[0].AddrPort != e.AddrPort && other[0].Compare(e) < 0 {
			other = other[1:]
		}
		if len(other) == 0 || other[0].AddrPort != e.AddrPort {
			rest = append(rest, e)
			continue
		}
		other = other[1:]
	}
	return rest
}

// holds reports whether a sorted set has an endpoint's address.
func holds(set []service.Endpoint, e service.Endpoint) bool {
	_, found := slices.BinarySearchFunc(set, e, service.Endpoint.Compare)
	return found
}

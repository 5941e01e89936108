package actors

import (
	"net/netip"
	"slices"

	"github.com/sluice-proxy/sluice/service"
)

// side is where connections to a service port come in: each has frontends of its
// own, with endpoints of its own. An endpoint may leave one and stay in the other.
type side uint8

const (
	// inside is the ClusterIP.
	inside side = iota
	// outside is everything else: node port, External IPs, load balancers.
	outside
	sideCount
)

// sides is a set of them.
type sides uint8

func (s side) bit() sides { return 1 << s }

// drains tells whether endpoints of a port can drain on this side. Those of SCTP go
// at once, as with kube-proxy.
func (s side) drains(p *service.PortView) bool {
	return p.Protocol != service.SCTP && (s == inside || p.ExternallyAccessible())
}

// keeps tells whether what goes on with an endpoint that gets nothing new may go on.
// A TCP connection may until it ends. A UDP flow has no end that anybody could see:
// it may as long as the endpoint serves, for example while that terminates.
func keeps(p *service.PortView, e service.Endpoint) bool {
	return p.Protocol == service.TCP || holds(p.Serving, e)
}

// targets gives the endpoints that new connections get on this side. Where the
// Local policy finds none, a backend may use those of the Cluster policy: what
// leaves by that is no worse off for being asked about.
func (s side) targets(p *service.PortView) []service.Endpoint {
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

// left gives the endpoints that have left one side of a service port and can drain
// there. A side that is gone has taken everything with it.
func left(s side, before, now *service.PortView) []service.Endpoint {
	if !s.drains(now) {
		return nil
	}
	gone := without(s.targets(before), s.targets(now))
	return slices.DeleteFunc(gone, func(e service.Endpoint) bool { return !keeps(now, e) })
}

// place is where an endpoint drains: the position of its service port, and its own
// address.
type place struct {
	port int
	addr netip.AddrPort
}

// index finds what drains.
func (d *drain) index() map[place]int {
	index := make(map[place]int, len(d.leavers))
	for i, l := range d.leavers {
		index[place{l.port, l.endpoint.AddrPort}] = i
	}
	return index
}

// survivor finds what has become of a service port, which was at position i. The
// kernel knows it by protocol and port, so its name may change; if its port has
// changed, its node port may still be the same. It is -1 for one that is gone.
func survivor(ports []service.PortView, i int, wanted *service.PortView) int {
	same := func(p service.PortView) bool { return p.Protocol == wanted.Protocol && p.Port == wanted.Port }
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

// without gives the endpoints of one sorted set whose addresses another one lacks.
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

// holds tells whether a sorted set has an endpoint's address.
func holds(set []service.Endpoint, e service.Endpoint) bool {
	_, found := slices.BinarySearchFunc(set, e, service.Endpoint.Compare)
	return found
}

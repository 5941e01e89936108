package conntrack

import (
	"net/netip"
	"slices"

	"github.com/sluice-proxy/sluice/service"
)

// A frontend is where clients send to: an address and port, or for a node port
// the port without an address (see nodePort).
type frontend = netip.AddrPort

// nodePort is the frontend of a node port, on whichever addresses it answers.
func nodePort(port uint16) frontend { return netip.AddrPortFrom(netip.Addr{}, port) }

// port is one UDP port of a Service: all its frontends lead to the same
// endpoints.
type port struct {
	frontends []frontend
	// serving are the endpoints to which flows may continue, sorted by address,
	// then port.
	serving []netip.AddrPort
	// resting are, while nothing serves, the endpoints that may serve again: flows
	// to them stay. Sorted likewise.
	resting []netip.AddrPort
}

// picture is what matters here about one Service in one family. It is a value,
// never changed once made.
type picture struct {
	ports []port
	// overtaken are frontends of earlier pictures that nobody has looked at.
	// They were in force for a moment, so that there may be flows through them.
	overtaken []frontend
	// repaired asks for all frontends to be looked at; see Cleaner.Repaired.
	repaired bool
}

// newPicture reduces a view.
func newPicture(family service.Family, view *service.View) picture {
	var p picture
	for i := range view.Ports[family] {
		if from := &view.Ports[family][i]; from.Protocol == service.UDP {
			p.ports = append(p.ports, port{frontends: frontendsOf(from), serving: sorted(from.Serving), resting: sorted(from.Resting)})
		}
	}
	return p
}

func frontendsOf(view *service.PortView) []frontend {
	all := []frontend{netip.AddrPortFrom(view.ClusterIP, view.Port)}
	for _, addresses := range [][]netip.Addr{view.LoadBalancerVIPs, view.ExternalIPs} {
		for _, a := range addresses {
			if f := netip.AddrPortFrom(a, view.Port); !slices.Contains(all, f) {
				all = append(all, f)
			}
		}
	}
	if view.NodePort != 0 {
		all = append(all, nodePort(view.NodePort))
	}
	return all
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

// newer lets a picture take the place of one that nobody has looked at yet.
func newer(older, newer picture) picture {
	merged := newer
	merged.overtaken = slices.Clone(older.overtaken)
	merged.repaired = older.repaired || newer.repaired
	for _, p := range older.ports {
		for _, f := range p.frontends {
			if !slices.Contains(merged.overtaken, f) {
				merged.overtaken = append(merged.overtaken, f)
			}
		}
	}
	return merged
}

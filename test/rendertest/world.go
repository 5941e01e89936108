// SPDX-License-Identifier: Apache-2.0

// Package rendertest has the addresses, Services and cases that tests of renderers and writers share.
package rendertest

import (
	"net/netip"

	"github.com/sluice-proxy/sluice/service"
)

// World has the addresses of one family that they use.
type World struct {
	Family                   service.Family
	ClusterIP, External, VIP netip.Addr
	Node, Second, Loopback   netip.Addr
	LinkLocal                netip.Addr
	Pods, Allowed, Services  netip.Prefix
	EndpointAddrs            []netip.Addr
}

// WorldOf returns the world of a family.
func WorldOf(family service.Family) World {
	texts := []string{
		"172.30.0.41", "192.0.2.1", "198.51.100.7", "203.0.113.1", "203.0.113.2", "127.0.0.1", "169.254.1.1",
		"10.180.0.1", "10.180.0.2", "10.180.1.3",
	}
	prefixes := []string{"10.180.0.0/16", "198.18.0.0/15", "172.30.0.0/16"}
	if family == service.IPv6 {
		texts = []string{
			"fd00:172:30::41", "2001:db8:1::1", "2001:db8:2::7", "2001:db8:3::1", "2001:db8:3::2", "::1", "fe80::1",
			"fd00:10:180::1", "fd00:10:180::2", "fd00:10:180:1::3",
		}
		prefixes = []string{"fd00:10:180::/48", "2001:db8:9::/48", "fd00:172:30::/112"}
	}
	a := make([]netip.Addr, len(texts))
	for i, text := range texts {
		a[i] = netip.MustParseAddr(text)
	}
	return World{
		Family: family, ClusterIP: a[0], External: a[1], VIP: a[2], Node: a[3], Second: a[4], Loopback: a[5], LinkLocal: a[6],
		Pods: netip.MustParsePrefix(prefixes[0]), Allowed: netip.MustParsePrefix(prefixes[1]),
		Services: netip.MustParsePrefix(prefixes[2]), EndpointAddrs: a[7:],
	}
}

// Endpoints returns n endpoints, of which the first is on this node. From the fourth on
// their addresses follow the third's.
func (w World) Endpoints(n int) []service.Endpoint {
	var endpoints []service.Endpoint
	var addr netip.Addr
	for i := range n {
		if addr = addr.Next(); i < len(w.EndpointAddrs) {
			addr = w.EndpointAddrs[i]
		}
		endpoints = append(endpoints, service.Endpoint{AddrPort: netip.AddrPortFrom(addr, 8080), Local: i == 0})
	}
	return endpoints
}

// Facts are those of a node with two addresses, whose pods are known by CIDR and
// whose node ports answer on every address.
func (w World) Facts() *service.NodeFacts {
	facts := &service.NodeFacts{Name: "n1"}
	facts.NodeIPs[w.Family] = w.Node
	facts.Detect[w.Family] = service.LocalDetector{CIDR: w.Pods}
	facts.NodePorts[w.Family] = service.NodePortAddresses{All: true, Host: []netip.Addr{w.Node, w.Second}}
	return facts
}

// Port is a ClusterIP with three endpoints.
func (w World) Port() service.PortView {
	return service.PortView{Name: "p80", Port: 80, ClusterIP: w.ClusterIP, HasAny: true, Cluster: w.Endpoints(3)}
}

// OpenPort answers on every kind of frontend.
func (w World) OpenPort() service.PortView {
	p := w.Port()
	p.NodePort = 30080
	p.ExternalIPs = []netip.Addr{w.External}
	p.LoadBalancerVIPs = []netip.Addr{w.VIP}
	return p
}

// View is a Service with these ports.
func (w World) View(ports ...service.PortView) *service.View {
	view := &service.View{Key: service.Key{Namespace: "ns1", Name: "svc1"}}
	view.Ports[w.Family] = ports
	return view
}

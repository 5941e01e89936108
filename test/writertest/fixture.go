// SPDX-License-Identifier: Apache-2.0

package writertest

import (
	"net/netip"
	"time"

	"github.com/sluice-proxy/sluice/service"
)

// Fixture is the world of one family: the node under test, another node, pods, and clients outside.
//
//	x, y ──── node ──── p1, a      (pods of this node)
//	            └────── n2: b, c   (pods of the other node)
//
// The Service's addresses are routed to the node. What the node lets through is answered as well,
// so that tests can distinguish it from what is dropped: n2 has these addresses, too, and a process
// on the node listens at the Service's node port.
type Fixture struct {
	Family service.Family
	// Node is the node's address, Second another one.
	Node, Second netip.Addr
	// OtherNode is the address of n2.
	OtherNode netip.Addr
	// ClusterIP, VIP and ExternalIP are the Service's addresses. OtherClusterIP is for a second
	// Service.
	ClusterIP, VIP, ExternalIP, OtherClusterIP netip.Addr
	// A to C are endpoints, Pod is a pod that is none.
	A, B, C, Pod netip.Addr
	// Outside is inside Allowed, ForeignProcess is not.
	Outside, ForeignProcess netip.Addr
	Allowed                 netip.Prefix
	// ClusterCIDR holds all pods.
	ClusterCIDR netip.Prefix
	ServiceCIDR netip.Prefix
	// Loopback is an address of the loopback interface.
	Loopback netip.Addr
}

// The ports of the Service and of its endpoints.
const (
	servicePort  = 80
	nodePort     = 30080
	endpointPort = 8080
)

// The node's interface to the pod that is no endpoint, and the pattern that matches those to all
// pods.
const (
	podInterface  = "veth-pod"
	podInterfaces = "veth-+"
)

// nodeName is the name of the node under test, otherNodeName that of n2.
const (
	nodeName      = "n1"
	otherNodeName = "n2"
)

// NewFixture returns the world of a family.
func NewFixture(family service.Family) Fixture {
	addr, prefix := netip.MustParseAddr, netip.MustParsePrefix
	if family == service.IPv6 {
		return Fixture{
			Family: family, Node: addr("2001:db8::2"), Second: addr("2001:db8:1::2"),
			OtherNode: addr("2001:db8::3"),
			ClusterIP: addr("fd00:172:30::41"), OtherClusterIP: addr("fd00:172:30::42"),
			VIP: addr("2001:db8:2::41"), ExternalIP: addr("2001:db8:2::99"),
			A: addr("fd00:10:244:1::10"), B: addr("fd00:10:244:2::20"), C: addr("fd00:10:244:2::30"),
			Pod:     addr("fd00:10:244:1::114"),
			Outside: addr("2001:db8:ffff::10"), ForeignProcess: addr("2001:db8:fffe::10"),
			Allowed:     prefix("2001:db8:ffff::/112"),
			ClusterCIDR: prefix("fd00:10:244::/48"), ServiceCIDR: prefix("fd00:172:30::/112"),
			Loopback: addr("::1"),
		}
	}
	return Fixture{
		Family: family, Node: addr("192.168.0.2"), Second: addr("192.168.1.2"),
		OtherNode: addr("192.168.0.3"),
		ClusterIP: addr("172.30.0.41"), OtherClusterIP: addr("172.30.0.42"),
		VIP: addr("192.0.2.41"), ExternalIP: addr("192.0.2.99"),
		A: addr("10.244.1.10"), B: addr("10.244.2.20"), C: addr("10.244.2.30"),
		Pod:     addr("10.244.1.14"),
		Outside: addr("203.0.113.10"), ForeignProcess: addr("203.0.113.130"),
		Allowed:     prefix("203.0.113.0/25"),
		ClusterCIDR: prefix("10.244.0.0/16"), ServiceCIDR: prefix("172.30.0.0/16"),
		Loopback: addr("127.0.0.1"),
	}
}

// Facts are the node facts of the fixture: pods are recognised by ClusterCIDR and node ports answer
// on every address.
func (f Fixture) Facts() service.NodeFacts {
	facts := service.NodeFacts{Name: nodeName, Zone: "za", LocalhostNodePorts: true}
	facts.NodeIPs[f.Family] = f.Node
	facts.Detect[f.Family].CIDR = f.ClusterCIDR
	facts.ServiceCIDRs[f.Family] = []netip.Prefix{f.ServiceCIDR}
	for _, family := range service.Families {
		facts.NodePorts[family].All = true
	}
	return facts
}

// serviceKey names the Service of the fixture.
var serviceKey = service.Key{Namespace: "ns1", Name: "svc1"}

// Spec is the Service of the fixture with its ClusterIP alone: port p80.
func (f Fixture) Spec() service.Spec {
	spec := service.Spec{
		Key:     serviceKey,
		Created: time.Unix(1700000000, 0),
		Ports:   []service.Port{{Name: "p80", Protocol: service.TCP, Port: servicePort}},
	}
	spec.ClusterIPs[f.Family] = f.ClusterIP
	return spec
}

// Exposed is the Service with node port, VIP and external IP.
func (f Fixture) Exposed() service.Spec {
	spec := f.Spec()
	spec.Ports[0].NodePort = nodePort
	spec.LoadBalancerVIPs[f.Family] = []netip.Addr{f.VIP}
	spec.ExternalIPs[f.Family] = []netip.Addr{f.ExternalIP}
	return spec
}

// Slice lists endpoints of the Service, all of them ready, at the usual port.
func (f Fixture) Slice(addrs ...netip.Addr) *service.Slice {
	slice := &service.Slice{
		Service: serviceKey, Name: "svc1-1", Family: f.Family,
		Ports: []service.SlicePort{{Name: "p80", Protocol: service.TCP, Port: endpointPort}},
	}
	for _, addr := range addrs {
		slice.Endpoints = append(slice.Endpoints, service.SliceEndpoint{
			Addr: addr, Location: &service.Location{NodeName: f.nodeOf(addr)}, Ready: true, Serving: true,
		})
	}
	return slice
}

// nodeOf returns the name of the node that an endpoint is on.
func (f Fixture) nodeOf(addr netip.Addr) string {
	if addr == f.B || addr == f.C {
		return otherNodeName
	}
	return nodeName
}

// backends are the endpoints that answer in the fixture's world.
func (f Fixture) backends() []netip.AddrPort {
	var backends []netip.AddrPort
	for _, addr := range []netip.Addr{f.A, f.B, f.C, f.Node} {
		backends = append(backends, netip.AddrPortFrom(addr, endpointPort))
	}
	return backends
}

// beyond are the addresses at n2 that answer what the node lets through.
func (f Fixture) beyond() []netip.AddrPort {
	var hosts []netip.AddrPort
	for _, addr := range []netip.Addr{f.ClusterIP, f.OtherClusterIP, f.VIP, f.ExternalIP} {
		hosts = append(hosts, netip.AddrPortFrom(addr, servicePort))
	}
	return hosts
}

// hostServices are the addresses at which processes of the node listen, besides the endpoint on the
// host network.
func (f Fixture) hostServices() []netip.AddrPort {
	var hosts []netip.AddrPort
	for _, addr := range []netip.Addr{f.Node, f.Second, f.Loopback} {
		hosts = append(hosts, netip.AddrPortFrom(addr, nodePort))
	}
	return hosts
}

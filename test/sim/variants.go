// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"github.com/sluice-proxy/sluice/service"
)

// The addresses of the simulated world.
//
//	10.96.0.N, fd00:96::N              ClusterIP of Service N
//	198.51.100.N, 2001:db8:51::N       external IP
//	192.0.2.N, 2001:db8:2::N           load balancer VIP
//	10.244.1.X, fd00:244:1::X          pods of this node
//	10.244.2.X, fd00:244:2::X          pods of the other one
//	203.0.113.X, 2001:db8:113::X       the world outside
//	192.168.0.2, 2001:db8:168::2       this node
//
// N = 250 is an address that several Services claim.
const contested = 250

const (
	thisNode  = "n1"
	otherNode = "n2"
)

// address returns number n of an IPv4 /16 or an IPv6 /64, the family's choice.
func address(family service.Family, four, six string, n int) netip.Addr {
	if family == service.IPv6 {
		a := netip.MustParseAddr(six).As16()
		a[14], a[15] = byte(n>>8), byte(n)
		return netip.AddrFrom16(a)
	}
	a := netip.MustParseAddr(four).As4()
	a[2] += byte(n >> 8)
	a[3] = byte(n)
	return netip.AddrFrom4(a)
}

func clusterIP(f service.Family, n int) netip.Addr { return address(f, "10.96.0.0", "fd00:96::", n) }
func externalIP(f service.Family, n int) netip.Addr {
	return address(f, "198.51.100.0", "2001:db8:51::", n)
}
func vip(f service.Family, n int) netip.Addr { return address(f, "192.0.2.0", "2001:db8:2::", n) }
func outside(f service.Family, n int) netip.Addr {
	return address(f, "203.0.113.0", "2001:db8:113::", n)
}
func host(f service.Family, n int) netip.Addr {
	return address(f, "192.168.0.0", "2001:db8:168::", n)
}
func localPod(f service.Family, n int) netip.Addr {
	return address(f, "10.244.1.0", "fd00:244:1::", n)
}
func remotePod(f service.Family, n int) netip.Addr {
	return address(f, "10.244.2.0", "fd00:244:2::", n)
}

func keyOf(n int) service.Key {
	if n < 0 {
		return service.Node
	}
	return service.Key{Namespace: fmt.Sprintf("ns%d", n%3), Name: fmt.Sprintf("s%d", n)}
}

func sliceName(n, m int) string { return fmt.Sprintf("s%d-%d", n, m) }

// random decides details by a variant. What a variant means must not change: the
// regressions are written in variants.
type random struct{ *rand.Rand }

// balanced is the first variant of Services that may choose an algorithm, and of slices with weights.
const balanced = 1 << 16

// adaptive is the first variant of Services that may adapt, and of slices with observations of a node.
const adaptive = 1 << 18

// refusing is the first variant of Services that may deny sources and say what happens without endpoints.
const refusing = 1 << 17

func newRandom(variant uint64, n int) random {
	return random{rand.New(rand.NewPCG(variant, uint64(n)))}
}

func (d random) percent(p int) bool { return d.IntN(100) < p }

// own is n, or sometimes the number that others claim as well.
func (d random) own(n int) int {
	if d.percent(12) {
		return contested
	}
	return n
}

// epoch is when the oldest Services were created.
var epoch = time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC)

// specOf returns Service n in one of its variants.
func specOf(n int, variant uint64) *service.Spec {
	d := newRandom(variant, n)
	s := &service.Spec{Key: keyOf(n), Created: epoch.AddDate(0, 0, d.IntN(4))}
	families := [][]service.Family{{service.IPv4}, {service.IPv4, service.IPv6}, {service.IPv6}}[d.IntN(3)]
	kind := d.IntN(4) // ClusterIP, external IPs, NodePort, LoadBalancer
	for i := range 1 + d.IntN(3) {
		p := service.Port{
			Name:     fmt.Sprintf("p%d", i),
			Protocol: []service.Protocol{service.TCP, service.TCP, service.UDP, service.SCTP}[d.IntN(4)],
			Port:     uint16(80 + i),
		}
		if kind >= 2 {
			p.NodePort = uint16(30000 + 8*d.own(n) + i)
		}
		s.Ports = append(s.Ports, p)
	}
	for _, family := range families {
		s.ClusterIPs[family] = clusterIP(family, n)
		if kind == 1 || d.percent(10) {
			s.ExternalIPs[family] = []netip.Addr{externalIP(family, d.own(n))}
		}
		if kind == 3 {
			s.LoadBalancerVIPs[family] = []netip.Addr{vip(family, d.own(n))}
			if d.percent(50) {
				s.SourceRanges[family] = []netip.Prefix{allowed(family)}
			}
			if d.percent(20) {
				s.SourceRanges[family] = append(s.SourceRanges[family], netip.PrefixFrom(host(family, 0), host(family, 0).BitLen()-8))
			}
		}
	}
	s.InternalLocal = d.percent(25)
	s.ExternalLocal = kind > 0 && d.percent(40)
	if kind == 3 && s.ExternalLocal {
		s.HealthCheckNodePort = uint16(29000 + n)
	}
	if d.percent(25) {
		s.AffinitySeconds = []int{10, 10800}[d.IntN(2)]
	} else if variant >= balanced {
		s.Balancing = service.Balancing(d.IntN(4))
		if variant >= adaptive && d.percent(20) {
			s.Balancing = service.LeastConnections
		}
	}
	if variant >= adaptive {
		if d.percent(30) {
			s.Adaptation.SlowStart = time.Minute
		}
		s.Adaptation.Outliers = d.percent(30)
		if d.percent(30) {
			s.Zones = service.ZonePolicy{MinEndpoints: uint16(d.IntN(4)), Share: uint8([]int{0, 50, 80}[d.IntN(3)])}
		}
	}
	if variant >= refusing {
		s.NoEndpoints = service.NoEndpoints(d.IntN(4))
		for _, family := range families {
			if d.percent(60) {
				s.DenyRanges[family] = denied(family, d)
			}
		}
	}
	return s
}

// denied is one or two ranges of sources outside and, sometimes, of the node or its pods.
func denied(f service.Family, d random) []netip.Prefix {
	some := []netip.Addr{outside(f, 128), outside(f, 8), host(f, 2), localPod(f, 98)}
	return service.MergeRanges([]netip.Prefix{
		netip.PrefixFrom(some[d.IntN(2)], outside(f, 0).BitLen()-[]int{7, 2}[d.IntN(2)]),
		netip.PrefixFrom(some[d.IntN(4)], outside(f, 0).BitLen()-d.IntN(2)),
	})
}

// allowed is a range that holds some of the addresses outside: 0 to 127.
func allowed(f service.Family) netip.Prefix {
	return netip.PrefixFrom(outside(f, 0), outside(f, 0).BitLen()-7)
}

// sliceOf returns slice m of Service n, owned by Service owner.
func sliceOf(n, m, owner int, variant uint64) *service.Slice {
	d := newRandom(variant, 1000*n+m)
	s := &service.Slice{
		Service: keyOf(owner), Name: sliceName(n, m),
		Family: service.Families[d.IntN(5)/3],
	}
	for i := range 3 {
		if d.percent(90) {
			for _, protocol := range []service.Protocol{service.TCP, service.UDP, service.SCTP} {
				s.Ports = append(s.Ports, service.SlicePort{Name: fmt.Sprintf("p%d", i), Protocol: protocol, Port: uint16(8080 + i)})
			}
		}
	}
	hinted := d.percent(20)
	for range d.IntN(5) {
		s.Endpoints = append(s.Endpoints, endpointOf(d, s.Family, hinted))
	}
	if variant >= adaptive && d.percent(25) {
		return &service.Slice{Service: s.Service, Name: s.Name, Family: s.Family, Observed: observed(d, s.Family)}
	}
	if variant >= balanced {
		s.Weight = uint16(1 + d.IntN(5))
		s.Drains = d.percent(25)
	}
	return s
}

// observed returns what a node might have observed of some endpoints.
func observed(d random, family service.Family) *service.Observed {
	o := &service.Observed{}
	for pod := range 12 {
		for port := range 3 {
			at := localPod(family, 1+pod)
			if d.percent(50) {
				at = remotePod(family, 1+pod)
			}
			if d.percent(60) {
				o.Endpoints = append(o.Endpoints, service.ObservedEndpoint{
					AddrPort: netip.AddrPortFrom(at, uint16(8080+port)), Percent: []uint16{0, 10, 55, 100, 400}[d.IntN(5)], Suspect: d.percent(30),
				})
			}
		}
	}
	slices.SortFunc(o.Endpoints, func(a, b service.ObservedEndpoint) int { return a.AddrPort.Compare(b.AddrPort) })
	return o
}

// endpointOf returns one of a few endpoints, so that slices and Services share
// some.
func endpointOf(d random, family service.Family, hinted bool) service.SliceEndpoint {
	e := service.SliceEndpoint{Addr: localPod(family, 1+d.IntN(12)), Location: &service.Location{NodeName: thisNode}, Ready: true, Serving: true}
	if d.percent(60) {
		e.Addr, e.Location.NodeName = remotePod(family, 1+d.IntN(12)), otherNode
	}
	switch d.IntN(10) {
	case 0:
		e.Ready = false
	case 1:
		e.Ready, e.Terminating = false, true
	case 2:
		e.Ready, e.Serving = false, false
	}
	if hinted {
		e.Location.ForZones = []string{[]string{"za", "zb"}[d.IntN(2)]}
	}
	return e
}

// nodeOf returns the Node object in one of its variants.
func nodeOf(variant uint64) *service.NodeObject {
	d := newRandom(variant, nodeActor)
	node := &service.NodeObject{Name: thisNode, Zone: []string{"", "za", "zb"}[d.IntN(3)]}
	at := 2 + 300*d.IntN(2) // inside and outside of the source ranges
	for _, family := range service.Families {
		node.Addresses = append(node.Addresses, host(family, at))
		node.PodCIDRs[family] = netip.PrefixFrom(localPod(family, 0), []int{24, 112}[family])
	}
	return node
}

// hostsOf returns the addresses of the host's interfaces; the node's first
// address is always there.
func hostsOf(variant uint64) []netip.Addr {
	d := newRandom(variant, nodeActor)
	all := []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.IPv6Loopback()}
	for _, family := range service.Families {
		all = append(all, host(family, 2))
		if d.percent(50) {
			all = append(all, host(family, 3))
		}
		if d.percent(50) {
			all = append(all, host(family, 300))
		}
	}
	return all
}

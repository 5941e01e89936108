// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source"
	"github.com/sluice-proxy/sluice/test/netnstest"
)

// podPort is where every pod of a live Service listens, over TCP and UDP.
const podPort = 8080

// liveService is a Service with real pods, to which the client talks. Its addresses are made from
// its number.
type liveService struct {
	name      string
	number    int
	endpoints int
	udp       bool
	affinity  int // seconds
	external  bool
}

// The live Services. pair and trio have different numbers of endpoints, and so different class
// chains; sticky has chains of its own; external has every kind of frontend.
var (
	pair     = liveService{name: "pair", number: 1, endpoints: 2}
	trio     = liveService{name: "trio", number: 2, endpoints: 3, udp: true}
	sticky   = liveService{name: "sticky", number: 3, endpoints: 2, affinity: 600}
	external = liveService{name: "external", number: 4, endpoints: 3, external: true}
)

var liveServices = []liveService{pair, trio, sticky, external}

func (s liveService) key() service.Key { return service.Key{Namespace: "live", Name: s.name} }

// pods is how many pods run: the endpoints at first, and one that stands by.
func (s liveService) pods() int { return s.endpoints + 1 }

func (s liveService) podName(i int) string { return fmt.Sprintf("%s-%d", s.name, i) }

func (s liveService) pod(family service.Family, i int) netip.Addr {
	return addr(family, "10.244.1.%d", "fd00:10:244:1::%d", 10*s.number+i)
}

func (s liveService) clusterIP(family service.Family) netip.Addr {
	return addr(family, "172.30.0.%d", "fd00:172:30::%d", s.number)
}

func (s liveService) vip(family service.Family) netip.Addr {
	return addr(family, "198.51.100.%d", "2001:db8:51::%d", s.number)
}

func (s liveService) spec() *service.Spec {
	spec := newSpec(s.key(), s.number)
	for _, family := range service.Families {
		spec.ClusterIPs[family] = s.clusterIP(family)
		if s.external {
			spec.LoadBalancerVIPs[family] = []netip.Addr{s.vip(family)}
		}
	}
	spec.AffinitySeconds = s.affinity
	if s.udp {
		spec.Ports = append(spec.Ports, service.Port{Name: "dns", Protocol: service.UDP, Port: 53})
	}
	if s.external {
		spec.Ports[0].NodePort = uint16(30000 + s.number)
		spec.SourceRanges[service.IPv4] = prefixes("203.0.113.0/24", "10.244.0.0/16")
		spec.SourceRanges[service.IPv6] = prefixes("2001:db8:ffff::/64", "fd00:10:244::/48")
	}
	return spec
}

// slice has the pods with the given numbers.
func (s liveService) slice(family service.Family, pods ...int) *service.Slice {
	var addrs []netip.Addr
	for _, i := range pods {
		addrs = append(addrs, s.pod(family, i))
	}
	return newSlice(s.key(), family, addrs)
}

// first are the numbers of the pods that are endpoints at first. In second, the pod that stands by
// has replaced the first one.
func (s liveService) first() []int  { return numbers(0, s.endpoints) }
func (s liveService) second() []int { return numbers(1, s.endpoints+1) }

func numbers(from, to int) []int {
	var all []int
	for i := from; i < to; i++ {
		all = append(all, i)
	}
	return all
}

// quietServices is the number of Services without traffic.
const quietServices = 30

func quietKey(n int) service.Key {
	return service.Key{Namespace: "quiet", Name: fmt.Sprintf("s%04d", n)}
}

// quietSpec returns the n-th quiet Service: every sixth has affinity, every fifth a node port.
func quietSpec(n int) *service.Spec {
	spec := newSpec(quietKey(n), 100+n)
	for _, family := range service.Families {
		spec.ClusterIPs[family] = addr(family, fmt.Sprintf("172.31.%d.%%d", n>>8), fmt.Sprintf("fd00:172:31:%d::%%d", n>>8), n&0xff)
	}
	if n%6 == 1 {
		spec.AffinitySeconds = 60
	}
	if n%5 == 2 && n < quietServices {
		spec.Ports[0].NodePort = uint16(31000 + n)
	}
	return spec
}

// quietSlice has up to four endpoints; every fifth Service has none.
func quietSlice(n int, family service.Family) *service.Slice {
	var addrs []netip.Addr
	for i := range n % 5 {
		addrs = append(addrs, addr(family, fmt.Sprintf("10.245.%d.%%d", n>>4), fmt.Sprintf("fd00:10:245:%d::%%d", n>>4), n%16*10+i+1))
	}
	return newSlice(quietKey(n), family, addrs)
}

func newSpec(key service.Key, age int) *service.Spec {
	return &service.Spec{
		Key: key, Created: time.Unix(int64(age), 0),
		Ports: []service.Port{{Name: "http", Port: 80}},
	}
}

func newSlice(key service.Key, family service.Family, addrs []netip.Addr) *service.Slice {
	slice := &service.Slice{
		Service: key, Name: key.Name + "-" + family.String(), Family: family,
		Ports: []service.SlicePort{{Name: "http", Port: podPort}, {Name: "dns", Protocol: service.UDP, Port: podPort}},
	}
	for _, a := range addrs {
		slice.Endpoints = append(slice.Endpoints, service.SliceEndpoint{Addr: a, Ready: true, Serving: true})
	}
	return slice
}

// fill puts the whole cluster into the cache, with so many quiet Services.
func fill(cache *source.Cache, quiet int) {
	for _, s := range liveServices {
		cache.SetSpec(s.spec())
		for _, family := range service.Families {
			cache.SetSlice(s.slice(family, s.first()...))
		}
	}
	fillQuiet(cache, 0, quiet)
}

// fillQuiet adds quiet Services.
func fillQuiet(cache *source.Cache, from, to int) {
	for n := from; n < to; n++ {
		cache.SetSpec(quietSpec(n))
		for _, family := range service.Families {
			cache.SetSlice(quietSlice(n, family))
		}
	}
}

// removeQuiet removes quiet Services.
func removeQuiet(cache *source.Cache, from, to int) {
	for n := from; n < to; n++ {
		cache.RemoveSpec(quietKey(n))
		for _, family := range service.Families {
			cache.RemoveSlice(quietKey(n).Namespace, quietSlice(n, family).Name)
		}
	}
}

// target is one frontend of a live Service, and how to talk to it.
type target struct {
	service  liveService
	family   service.Family
	protocol string // "tcp" or "udp"
	kind     frontendKind
}

type frontendKind string

const (
	clusterIP frontendKind = "ClusterIP"
	nodePort  frontendKind = "node port"
	balancer  frontendKind = "load balancer"
)

// String names the target for messages.
func (t target) String() string {
	return fmt.Sprintf("%s/%s %s %s", t.service.name, t.kind, t.family, t.protocol)
}

func (t target) addr() netip.AddrPort {
	switch {
	case t.kind == nodePort:
		return netip.AddrPortFrom(netnstest.NodeAddresses[t.family], uint16(30000+t.service.number))
	case t.kind == balancer:
		return netip.AddrPortFrom(t.service.vip(t.family), 80)
	case t.protocol == "udp":
		return netip.AddrPortFrom(t.service.clusterIP(t.family), 53)
	default:
		return netip.AddrPortFrom(t.service.clusterIP(t.family), 80)
	}
}

// allTargets are the frontends of all live Services in both families.
func allTargets() []target {
	var all []target
	for _, family := range service.Families {
		for _, s := range liveServices {
			all = append(all, target{s, family, "tcp", clusterIP})
			if s.udp {
				all = append(all, target{s, family, "udp", clusterIP})
			}
			if s.external {
				all = append(all, target{s, family, "tcp", nodePort}, target{s, family, "tcp", balancer})
			}
		}
	}
	return all
}

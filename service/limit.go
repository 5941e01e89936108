// SPDX-License-Identifier: Apache-2.0

package service

import (
	"fmt"
	"net/netip"
	"slices"
)

// Limit bounds the objects of one Service in one family, whatever allocated its addresses.
type Limit struct {
	// Objects is their largest number; 0 for no limit.
	Objects int
	Layout  Layout
}

// Layout describes how the objects of a backend grow with the frontends and endpoints of a service port.
type Layout uint8

const (
	// SlotsEach: each frontend has a separate table, as in nftables and userspace mode.
	SlotsEach Layout = iota
	// EndpointsEach: each frontend is a virtual server with all endpoints.
	EndpointsEach
	// EndpointsOnce: all frontends share the rules of the endpoints and of sources, as in iptables mode.
	EndpointsOnce
)

// Excess describes a Service above the limit, and what is left out of it.
type Excess struct {
	// Family is the family with more left-out frontends.
	Family Family
	// Objects is the number of objects that the Service needs in this family, Max the limit.
	Objects, Max int
	// LeftOut is the number of frontends that are left out. It is 0 for a Service within the limit.
	LeftOut int
}

// Warning returns the excess as a warning about a Service.
func (e Excess) Warning(key Key) Warning {
	return Warning{Object: "Service " + key.String(), Field: "spec", Problem: e.String()}
}

// String describes an excess.
func (e Excess) String() string {
	return fmt.Sprintf("needs %d objects over %v; the limit is %d; frontends left out: %d", e.Objects, e.Family, e.Max, e.LeftOut)
}

// demand is the number of objects that a service port needs: for each frontend of a kind, and once for all frontends.
type demand struct {
	once int
	each [ExternalIP + 1]int
}

// demand counts without resolving endpoints, so the count costs little for a Service of any size. Endpoints count
// regardless of their conditions, and twice if they are in two slices.
func (s *selection) demand(p *PortView, family Family, port int, from []*Slice, facts *NodeFacts) (d demand) {
	endpoints := 0
	s.each(family, &s.spec.Ports[port], from, func(slice int32, _ uint16) { endpoints += len(from[slice].Endpoints) })
	base, denied := 1, len(p.DenyRanges)
	switch facts.Limit.Layout {
	case EndpointsOnce:
		d.once, d.each = endpoints+2*denied+len(p.SourceRanges), [...]int{1, 1, 1, 1}
		return d
	case EndpointsEach:
		base, denied = 2, 0 // IPVS mode does not implement denied sources
	case SlotsEach:
		if s.spec.FullTable(from) && endpoints > 0 {
			endpoints = max(HashedSlots(endpoints), endpoints)
		}
	}
	external := base + endpoints + denied
	d.each = [...]int{
		ClusterIP: base + endpoints, NodePort: external * max(1, facts.NodePorts[family].served()),
		LoadBalancerIP: external + len(p.SourceRanges), ExternalIP: external,
	}
	return d
}

// FullTable reports whether the Service asks for an algorithm other than Random, or for weights. Its table of slots may
// then be much larger than the number of endpoints.
func (s *Spec) FullTable(from []*Slice) bool {
	return s.Balancing != Random || s.Adaptation.SlowStart > 0 || s.Zones.Share > 0 ||
		slices.ContainsFunc(from, func(s *Slice) bool { return s.Weight > 1 })
}

// count returns the number of frontends of a kind.
func (p *PortView) count(kind FrontendKind) int {
	switch {
	case kind == ClusterIP && p.ClusterIP.IsValid(), kind == NodePort && p.NodePort != 0:
		return 1
	case kind == LoadBalancerIP:
		return len(p.LoadBalancerVIPs)
	case kind == ExternalIP:
		return len(p.ExternalIPs)
	default:
		return 0
	}
}

// keep leaves out all frontends of a kind except the first n.
func (p *PortView) keep(kind FrontendKind, n int) {
	switch {
	case kind == LoadBalancerIP:
		p.LoadBalancerVIPs = p.LoadBalancerVIPs[:n]
	case kind == ExternalIP:
		p.ExternalIPs = p.ExternalIPs[:n]
	case kind == NodePort && n == 0:
		p.NodePort = 0
	case n == 0:
		p.ClusterIP = netip.Addr{}
	}
}

// limit leaves out frontends until the objects of the other frontends are within the limit. It keeps ClusterIPs first, then
// node ports, load balancer IPs and external IPs, each in the order of the API, so frontends that a tenant chooses freely
// are left out first. Smaller frontends after one that does not fit are kept if they fit.
func (s *selection) limit(ports []PortView, family Family, from []*Slice, facts *NodeFacts) (e Excess) {
	if facts.Limit.Objects == 0 {
		return e
	}
	e.Family, e.Max = family, facts.Limit.Objects
	for i := range ports {
		d := s.demand(&ports[i], family, i, from, facts)
		e.Objects += d.once
		for kind, each := range d.each {
			e.Objects += ports[i].count(FrontendKind(kind)) * each
		}
	}
	if e.Objects <= e.Max {
		return e
	}
	demands, room := make([]demand, len(ports)), e.Max
	for i := range ports {
		demands[i] = s.demand(&ports[i], family, i, from, facts)
	}
	for kind := ClusterIP; kind <= ExternalIP; kind++ {
		for i := range ports {
			d, n := &demands[i], ports[i].count(kind)
			fits := min(n, max(0, room-d.once)/d.each[kind])
			if fits > 0 {
				room -= d.once + fits*d.each[kind]
				d.once = 0
			}
			ports[i].keep(kind, fits)
			e.LeftOut += n - fits
		}
	}
	return e
}

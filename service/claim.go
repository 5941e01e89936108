// SPDX-License-Identifier: Apache-2.0

package service

import (
	"net/netip"
	"slices"
)

// ClaimKind is why a Service requests a frontend. Among several Services, the smallest kind wins.
type ClaimKind uint8

const (
	// Allocated frontends are given out by the API server: ClusterIPs and node ports.
	Allocated ClaimKind = iota
	// Assigned frontends are given out by a load balancer controller.
	Assigned
	// Requested frontends are external IPs, which the author of a Service chooses freely.
	Requested
)

// Claims calls yield with each frontend that the Service requests, by family. A family without a ClusterIP is not
// served and has none. The API server rejects a Service that lists a port twice; for one from another source, Claims
// may yield a frontend twice.
func (s *Spec) Claims(yield func(Family, Frontend, ClaimKind)) {
	if s == nil {
		return
	}
	for _, family := range Families {
		ip, vips := s.ClusterIPs[family], s.LoadBalancerVIPs[family]
		if !ip.IsValid() {
			continue
		}
		for i := range s.Ports {
			at := func(addr netip.Addr) Frontend { return Frontend{addr, s.Ports[i].Port, s.Ports[i].Protocol} }
			yield(family, at(ip), Allocated)
			if port := s.Ports[i].NodePort; port != 0 {
				yield(family, Frontend{Port: port, Protocol: s.Ports[i].Protocol}, Allocated)
			}
			if s.Ports[i].NotOutside {
				continue
			}
			for _, addr := range vips {
				if addr != ip {
					yield(family, at(addr), Assigned)
				}
			}
			for _, addr := range s.ExternalIPs[family] {
				if addr != ip && !slices.Contains(vips, addr) {
					yield(family, at(addr), Requested)
				}
			}
		}
	}
}

// KindOf returns the kind of a frontend that the Service requests.
func (s *Spec) KindOf(family Family, f Frontend) ClaimKind {
	switch {
	case !f.Addr.IsValid() || f.Addr == s.ClusterIPs[family]:
		return Allocated
	case slices.Contains(s.LoadBalancerVIPs[family], f.Addr):
		return Assigned
	default:
		return Requested
	}
}

// Denial is a frontend that a Service requests and another Service owns.
type Denial struct {
	Frontend Frontend
	// By is the Service that owns it.
	By Key
}

// Shadowed reports whether another Service owns a frontend that this one requests.
func (s *Spec) Shadowed() bool { return len(s.Denied[IPv4])+len(s.Denied[IPv6]) > 0 }

// DeniedBy returns the other Service that owns a frontend, and false if this Service is not denied it.
func (s *Spec) DeniedBy(family Family, f Frontend) (by Key, denied bool) {
	if s == nil {
		return by, false
	}
	return deniedBy(s.Denied[family], f)
}

// deniedBy searches a list that is sorted by frontend.
func deniedBy(denied []Denial, f Frontend) (by Key, found bool) {
	at, found := slices.BinarySearchFunc(denied, f, func(d Denial, f Frontend) int { return d.Frontend.Compare(f) })
	if found {
		by = denied[at].By
	}
	return by, found
}

// deny removes the denied frontends from a port.
func (p *PortView) deny(denied []Denial) {
	if len(denied) == 0 {
		return
	}
	has := func(f Frontend) bool {
		_, found := deniedBy(denied, f)
		return found
	}
	at := func(addr netip.Addr) bool { return has(Frontend{addr, p.Port, p.Protocol}) }
	if at(p.ClusterIP) {
		p.ClusterIP = netip.Addr{}
	}
	if has(Frontend{Port: p.NodePort, Protocol: p.Protocol}) {
		p.NodePort = 0
	}
	for _, addrs := range [...]*[]netip.Addr{&p.ExternalIPs, &p.LoadBalancerVIPs} {
		if slices.ContainsFunc(*addrs, at) { // the spec shares the list
			*addrs = slices.DeleteFunc(slices.Clone(*addrs), at)
		}
	}
}

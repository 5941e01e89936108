// SPDX-License-Identifier: Apache-2.0

package service

import (
	"net/netip"
	"slices"
)

// Claims calls yield with each frontend that the Service requests, by family. A family without a ClusterIP is not
// served and has none. The API server rejects a Service that lists a port twice; for one from another source, Claims
// may yield a frontend twice.
func (s *Spec) Claims(yield func(Family, Frontend, FrontendKind)) {
	if s == nil {
		return
	}
	for _, family := range Families {
		for i := range s.Ports {
			port := s.frontends(family, i)
			for e := range port.Exposures {
				if s.ClusterIPs[family].IsValid() && e.Kind == s.KindOf(family, e.Frontend) {
					yield(family, e.Frontend, e.Kind)
				}
			}
		}
	}
}

// KindOf returns the kind of a frontend that the Service requests.
func (s *Spec) KindOf(family Family, f Frontend) FrontendKind {
	switch {
	case !f.Addr.IsValid():
		return NodePort
	case f.Addr == s.ClusterIPs[family]:
		return ClusterIP
	case slices.Contains(s.LoadBalancerVIPs[family], f.Addr):
		return LoadBalancerIP
	default:
		return ExternalIP
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

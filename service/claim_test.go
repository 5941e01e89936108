// SPDX-License-Identifier: Apache-2.0

package service

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// claimant returns a Service of both families with everything that can be claimed; some of it twice.
func claimant() *Spec {
	addrs := func(texts ...string) (all []netip.Addr) {
		for _, text := range texts {
			all = append(all, netip.MustParseAddr(text))
		}
		return all
	}
	s := &Spec{Key: Key{"ns", "web"}, Ports: []Port{{Name: "a", Port: 80, NodePort: 30080}, {Name: "b", Port: 53, Protocol: UDP}}}
	s.ClusterIPs = PerFamily[netip.Addr]{addrs("172.30.0.1")[0], addrs("fd00::1")[0]}
	s.LoadBalancerVIPs[IPv4] = addrs("203.0.113.1", "172.30.0.1")
	s.ExternalIPs[IPv4] = addrs("192.0.2.1", "203.0.113.1", "172.30.0.1")
	return s
}

// TestSpec_Claims: a Service claims each frontend once per port, with its best kind, and KindOf returns this kind.
func TestSpec_Claims(t *testing.T) {
	claims := func(s *Spec) string {
		var lines []string
		s.Claims(func(family Family, f Frontend, kind FrontendKind) {
			lines = append(lines, fmt.Sprintf("%v %v %v", family, f, kind))
			if s.KindOf(family, f) != kind {
				t.Errorf("%v is of kind %v, and claimed as %v", f, s.KindOf(family, f), kind)
			}
		})
		slices.Sort(lines)
		return strings.Join(lines, "\n")
	}
	const six = `IPv6 [fd00::1]:53/udp ClusterIP
IPv6 [fd00::1]:80/tcp ClusterIP
IPv6 node port 30080/tcp NodePort`
	const both = `IPv4 172.30.0.1:53/udp ClusterIP
IPv4 172.30.0.1:80/tcp ClusterIP
IPv4 192.0.2.1:53/udp ExternalIP
IPv4 192.0.2.1:80/tcp ExternalIP
IPv4 203.0.113.1:53/udp LoadBalancerIP
IPv4 203.0.113.1:80/tcp LoadBalancerIP
IPv4 node port 30080/tcp NodePort
` + six
	if got := claims(claimant()); got != both {
		t.Errorf("got\n%s\nwant\n%s", got, both)
	}
	without := claimant()
	without.ClusterIPs[IPv4] = netip.Addr{}
	if got := claims(without); got != six {
		t.Errorf("without a ClusterIP in IPv4: got\n%s\nwant\n%s", got, six)
	}
	inside := claimant()
	inside.Ports[1].NotOutside = true
	if got, want := claims(inside), strings.ReplaceAll(strings.ReplaceAll(both, "IPv4 192.0.2.1:53/udp ExternalIP\n", ""), "IPv4 203.0.113.1:53/udp LoadBalancerIP\n", ""); got != want {
		t.Errorf("with a port that is not served outside: got\n%s\nwant\n%s", got, want)
	}
	if got := claims(nil); got != "" {
		t.Errorf("no Service claims %s", got)
	}
}

// TestResolve_OmitsDeniedFrontends denies each frontend of a Service, one after the other. The view lacks only the
// denied frontend, and the spec is unchanged.
func TestResolve_OmitsDeniedFrontends(t *testing.T) {
	served := func(s *Spec) (all []string) {
		view := Resolve(s.Key, s, nil, &NodeFacts{})
		for _, family := range Families {
			for _, p := range view.Ports[family] {
				for _, addr := range slices.Concat([]netip.Addr{p.ClusterIP}, p.LoadBalancerVIPs, p.ExternalIPs) {
					if addr.IsValid() {
						all = append(all, fmt.Sprint(family, Frontend{addr, p.Port, p.Protocol}))
					}
				}
				if p.NodePort != 0 {
					all = append(all, fmt.Sprint(family, Frontend{Port: p.NodePort, Protocol: p.Protocol}))
				}
			}
		}
		slices.Sort(all)
		return all
	}
	before := served(claimant())
	claimant().Claims(func(family Family, f Frontend, _ FrontendKind) {
		s := claimant()
		s.Denied[family] = []Denial{{f, Key{"ns", "owner"}}}
		want := slices.DeleteFunc(slices.Clone(before), func(text string) bool { return text == fmt.Sprint(family, f) })
		if got := served(s); !slices.Equal(got, want) {
			t.Errorf("without %v: served are %v, want %v", f, got, want)
		}
		if by, denied := s.DeniedBy(family, f); !denied || by.Name != "owner" || !s.Shadowed() {
			t.Errorf("%v is denied by %v: %v", f, by, denied)
		}
		if _, denied := s.DeniedBy(1-family, f); denied {
			t.Errorf("%v is denied in the other family", f)
		}
		if got := served(claimant()); !slices.Equal(got, before) || !slices.Equal(s.ExternalIPs[IPv4], claimant().ExternalIPs[IPv4]) ||
			!slices.Equal(s.LoadBalancerVIPs[IPv4], claimant().LoadBalancerVIPs[IPv4]) {
			t.Errorf("without %v, the spec was changed", f)
		}
	})
}

// SPDX-License-Identifier: Apache-2.0

package service

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// exposures lists the exposures of a port, one per line.
func exposures(p *PortView) string {
	var lines []string
	for e := range p.Exposures {
		lines = append(lines, fmt.Sprintf("%s %v, local %t, to %d, near %d, refusal %q, allowed %d, denied %d",
			e.Kind, e.Frontend, e.Local, len(e.To), len(e.Near), e.Refusal, len(e.Allowed), len(e.Denied)))
	}
	return strings.Join(lines, "\n")
}

// TestExposures: a port with all kinds of frontends, with each policy.
func TestExposures(t *testing.T) {
	addr := netip.MustParseAddr
	open := PortView{
		Port: 80, ClusterIP: addr("172.30.0.1"), NodePort: 30080,
		ExternalIPs: []netip.Addr{addr("192.0.2.1"), addr("203.0.113.1")}, LoadBalancerVIPs: []netip.Addr{addr("203.0.113.1")},
		SourceRanges: []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}, DenyRanges: []netip.Prefix{netip.MustParsePrefix("198.18.0.0/15")},
		HasAny: true, Cluster: make([]Endpoint, 3),
	}
	for name, c := range map[string]struct {
		change func(*PortView)
		want   string
	}{
		// An external IP that is a load balancer IP as well is limited as that one.
		"policy Cluster": {func(*PortView) {}, `ClusterIP 172.30.0.1:80/tcp, local false, to 3, near 3, refusal "", allowed 0, denied 0
ExternalIP 192.0.2.1:80/tcp, local false, to 3, near 3, refusal "", allowed 0, denied 1
ExternalIP 203.0.113.1:80/tcp, local false, to 3, near 3, refusal "", allowed 1, denied 1
LoadBalancerIP 203.0.113.1:80/tcp, local false, to 3, near 3, refusal "", allowed 1, denied 1
NodePort node port 30080/tcp, local false, to 3, near 3, refusal "", allowed 0, denied 1`},
		// Near clients reach all endpoints, others are refused.
		"externalTrafficPolicy Local": {func(p *PortView) {
			p.ExternalLocal, p.LoadBalancerVIPs, p.ExternalIPs, p.DenyRanges = true, nil, nil, nil
		}, `ClusterIP 172.30.0.1:80/tcp, local false, to 3, near 3, refusal "", allowed 0, denied 0
NodePort node port 30080/tcp, local true, to 0, near 3, refusal "drop", allowed 0, denied 0`},
		"internalTrafficPolicy Local, an endpoint here": {func(p *PortView) {
			p.InternalLocal, p.Local, p.NodePort, p.LoadBalancerVIPs, p.ExternalIPs = true, make([]Endpoint, 1), 0, nil, nil
		}, `ClusterIP 172.30.0.1:80/tcp, local true, to 1, near 1, refusal "", allowed 0, denied 0`},
		"no endpoints, and the ClusterIP is denied": {func(p *PortView) {
			*p = PortView{NodePort: 30080, Protocol: UDP, Port: 53}
		}, `NodePort node port 30080/udp, local false, to 0, near 0, refusal "reject", allowed 0, denied 0`},
		"the node may use a load balancer IP as its source": {func(p *PortView) {
			p.NodeInSourceRanges, p.ExternalIPs, p.NodePort, p.DenyRanges = true, nil, 0, nil
		}, `ClusterIP 172.30.0.1:80/tcp, local false, to 3, near 3, refusal "", allowed 0, denied 0
LoadBalancerIP 203.0.113.1:80/tcp, local false, to 3, near 3, refusal "", allowed 2, denied 0`},
	} {
		p := open
		if c.change(&p); exposures(&p) != c.want {
			t.Errorf("%s: got\n%s\nwant\n%s", name, exposures(&p), c.want)
		}
	}
	for n := range 5 {
		seen := 0
		for range open.Exposures {
			if seen++; seen > n {
				break
			}
		}
	}
}

// TestExposures_MatchClaims: a Service without denied frontends serves exactly the frontends that it claims.
func TestExposures_MatchClaims(t *testing.T) {
	for _, notOutside := range []bool{false, true} {
		s := claimant()
		s.Ports[1].NotOutside = notOutside
		var claims, served []string
		s.Claims(func(family Family, f Frontend, _ FrontendKind) { claims = append(claims, fmt.Sprint(family, f)) })
		view := Resolve(s.Key, s, nil, &NodeFacts{})
		for _, family := range Families {
			for i := range view.Ports[family] {
				for e := range view.Ports[family][i].Exposures {
					served = append(served, fmt.Sprint(family, e.Frontend))
				}
			}
		}
		slices.Sort(claims)
		slices.Sort(served)
		if served = slices.Compact(served); !slices.Equal(claims, served) {
			t.Errorf("not outside %t: claims %v, served %v", notOutside, claims, served)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package service

import (
	"net/netip"
	"reflect"
	"slices"
	"testing"
)

// TestView_Within compares Within with the frontends that two resolved views have in common.
func TestView_Within(t *testing.T) {
	addrs := func(texts ...string) (all []netip.Addr) {
		for _, text := range texts {
			all = append(all, netip.MustParseAddr(text))
		}
		return all
	}
	base := func() *Spec {
		return &Spec{Key: Key{"ns", "web"},
			ClusterIPs:          PerFamily[netip.Addr]{addrs("172.30.0.1")[0], addrs("fd00::1")[0]},
			Ports:               []Port{{Name: "a", Port: 80, NodePort: 30080}, {Name: "b", Port: 81, NodePort: 30081}, {Name: "b", Port: 81, Protocol: UDP}},
			ExternalIPs:         PerFamily[[]netip.Addr]{addrs("192.0.2.1", "192.0.2.2"), addrs("2001:db8::1")},
			LoadBalancerVIPs:    PerFamily[[]netip.Addr]{addrs("203.0.113.1", "203.0.113.2"), nil},
			HealthCheckNodePort: 32000,
		}
	}
	denials := func(addrs ...netip.Addr) (all []Denial) { // at port 80/tcp
		for _, addr := range addrs {
			all = append(all, Denial{Frontend{Addr: addr, Port: 80}, Key{"ns", "owner"}})
		}
		slices.SortFunc(all, func(a, b Denial) int { return a.Frontend.Compare(b.Frontend) })
		return all
	}
	frontendsOf := func(v *View) map[Family][]netip.AddrPort {
		all := map[Family][]netip.AddrPort{}
		for _, family := range Families {
			for i := range v.Ports[family] {
				p := &v.Ports[family][i]
				for _, addr := range slices.Concat([]netip.Addr{p.ClusterIP}, p.ExternalIPs, p.LoadBalancerVIPs) {
					if !addr.IsValid() {
						continue // denied
					}
					all[family] = append(all[family], netip.AddrPortFrom(addr, p.Port))
				}
				if p.NodePort != 0 {
					all[family] = append(all[family], netip.AddrPortFrom(netip.Addr{}, p.NodePort))
				}
			}
		}
		return all
	}
	endpoints := []*Slice{{Name: "s", Service: Key{"ns", "web"}, Ports: []SlicePort{{Name: "a", Port: 8080}, {Name: "b", Port: 8081}},
		Endpoints: []SliceEndpoint{{Addr: addrs("10.0.0.1")[0], Ready: true, Serving: true}}}}
	for name, tt := range map[string]struct {
		change func(s *Spec)
		facts  NodeFacts
		gone   int
	}{
		"nothing":            {func(*Spec) {}, NodeFacts{}, 0},
		"a denied port":      {func(s *Spec) { s.Ports[1].NotOutside = true }, NodeFacts{}, 5},
		"a port's name":      {func(s *Spec) { s.Ports[0].Name = "x" }, NodeFacts{}, 0},
		"more is wanted":     {func(s *Spec) { s.ExternalIPs[IPv4] = append(s.ExternalIPs[IPv4], addrs("192.0.2.9")...) }, NodeFacts{}, 0},
		"an external IP":     {func(s *Spec) { s.ExternalIPs[IPv4] = addrs("192.0.2.9", "192.0.2.2") }, NodeFacts{}, 3},
		"a load balancer IP": {func(s *Spec) { s.LoadBalancerVIPs[IPv4] = addrs("203.0.113.2") }, NodeFacts{}, 3},
		"a ServiceCIDR":      {func(*Spec) {}, NodeFacts{ServiceCIDRs: PerFamily[[]netip.Prefix]{{netip.MustParsePrefix("192.0.2.0/31")}, nil}}, 3},
		"a node port":        {func(s *Spec) { s.Ports[0].NodePort = 30082 }, NodeFacts{}, 2},
		"a service port":     {func(s *Spec) { s.Ports = s.Ports[:1] }, NodeFacts{}, 2*(5+2) + 2},
		"a port number":      {func(s *Spec) { s.Ports[1].Port = 82 }, NodeFacts{}, 5 + 2 + 2},
		"a family":           {func(s *Spec) { s.ClusterIPs[IPv6] = netip.Addr{} }, NodeFacts{}, 3*2 + 2},
		"the ClusterIPs":     {func(s *Spec) { s.ClusterIPs = PerFamily[netip.Addr]{addrs("172.30.0.2")[0], addrs("fd00::2")[0]} }, NodeFacts{}, 3*7 + 2*2},
		"a denied frontend":  {func(s *Spec) { s.Denied[IPv4] = denials(s.ExternalIPs[IPv4][0]) }, NodeFacts{}, 1},
		"all addresses of a port denied": {func(s *Spec) {
			s.Denied[IPv4] = denials(append(append(s.ExternalIPs[IPv4], s.LoadBalancerVIPs[IPv4]...), s.ClusterIPs[IPv4])...)
		}, NodeFacts{}, 5},
		"the order of ports":  {func(s *Spec) { slices.Reverse(s.Ports) }, NodeFacts{}, 0},
		"the health port too": {func(s *Spec) { s.HealthCheckNodePort = 0 }, NodeFacts{}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			before := Resolve(base().Key, base(), endpoints, &NodeFacts{})
			spec := base()
			tt.change(spec)
			got := before.Within(spec, &tt.facts)
			was, is := frontendsOf(&before), frontendsOf(&got)
			if gone := len(was[IPv4]) + len(was[IPv6]) - len(is[IPv4]) - len(is[IPv6]); gone != tt.gone {
				t.Errorf("%d frontends are gone, want %d: %v", gone, tt.gone, is)
			}
			now := Resolve(spec.Key, spec, endpoints, &tt.facts)
			for family, all := range is {
				for _, at := range all {
					if !slices.Contains(frontendsOf(&now)[family], at) {
						t.Errorf("%v is still there", at)
					}
				}
			}
			if got.HealthCheckNodePort != spec.HealthCheckNodePort {
				t.Errorf("health port %d", got.HealthCheckNodePort)
			}
			again := Resolve(base().Key, base(), endpoints, &NodeFacts{})
			if !reflect.DeepEqual(before, again) {
				t.Error("the view was changed")
			}
		})
	}
}

// TestView_WithinRestOfFamily: Within keeps a port whose ClusterIP is denied while the Service has the family, and
// drops the port with its family.
func TestView_WithinRestOfFamily(t *testing.T) {
	ip, external := netip.MustParseAddr("fd00::1"), netip.MustParseAddr("2001:db8::1")
	spec := Spec{Key: Key{"ns", "web"}, Ports: []Port{{Port: 80, NodePort: 30080}}}
	spec.ClusterIPs[IPv6], spec.ExternalIPs[IPv6] = ip, []netip.Addr{external}
	spec.Denied[IPv6] = []Denial{{Frontend{Addr: ip, Port: 80}, Key{"ns", "owner"}}}
	view := Resolve(spec.Key, &spec, nil, &NodeFacts{})
	if kept := view.Within(&spec, &NodeFacts{}); len(kept.Ports[IPv6]) != 1 || kept.Ports[IPv6][0].NodePort != 30080 || len(kept.Ports[IPv6][0].ExternalIPs) != 1 {
		t.Errorf("kept %+v", kept)
	}
	spec.ClusterIPs[IPv6] = netip.Addr{}
	if kept := view.Within(&spec, &NodeFacts{}); len(kept.Ports[IPv6]) != 0 {
		t.Errorf("kept %+v in a family that the Service no longer has", kept)
	}
}

// SPDX-License-Identifier: Apache-2.0

package service

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"
)

// TestResolve_WithoutSpec: without a spec, the view contains nothing but the key.
func TestResolve_WithoutSpec(t *testing.T) {
	view := Resolve(testKey, nil, []*Slice{newSlice(t, IPv4, "s1", "a R")}, facts())
	if !view.Equal(&View{Key: testKey}) {
		t.Errorf("got %+v, want nothing but the key", view)
	}
}

// TestResolve_Families: a family is served if and only if the Service has a ClusterIP in it, with its own frontends and
// endpoints.
func TestResolve_Families(t *testing.T) {
	eachFamily(t, func(t *testing.T, family Family) {
		other := 1 - family
		spec := newSpec()
		spec.ClusterIPs[other] = netip.Addr{}
		from := []*Slice{newSlice(t, family, "s1", "a R"), newSlice(t, other, "s2", "b R")}
		view := Resolve(testKey, spec, from, facts())
		if len(view.Ports[other]) != 0 {
			t.Errorf("%s has ports without a ClusterIP: %+v", other, view.Ports[other])
		}
		if got := letters(view.Ports[family][0].Cluster); got != "a" {
			t.Errorf("%s: Cluster = %q, want \"a\"", family, got)
		}

		view = Resolve(testKey, newSpec(), from[1:], facts())
		if view.Ports[family][0].HasAny || !view.Ports[other][0].HasAny {
			t.Errorf("endpoints of %s only: %+v", other, view.Ports)
		}
	})
}

// TestResolve_Frontends: the view of each family contains its ports, addresses and policies unchanged.
func TestResolve_Frontends(t *testing.T) {
	addrs := func(text string) []netip.Addr { return []netip.Addr{netip.MustParseAddr(text)} }
	ranges := func(text string) []netip.Prefix { return []netip.Prefix{netip.MustParsePrefix(text)} }
	spec := newSpec()
	spec.Created = time.Unix(1000, 0)
	spec.Ports = []Port{
		{Name: "z", Protocol: SCTP, Port: 80, NodePort: 30080},
		{Name: "a", Protocol: TCP, Port: 81},
	}
	spec.ExternalIPs = PerFamily[[]netip.Addr]{addrs("192.0.2.99"), addrs("2001:db8::99")}
	spec.LoadBalancerVIPs = PerFamily[[]netip.Addr]{addrs("192.0.2.5"), addrs("2001:db8::5")}
	spec.SourceRanges = PerFamily[[]netip.Prefix]{ranges("203.0.113.0/25"), ranges("2001:db8:ffff::/112")}
	spec.InternalLocal, spec.ExternalLocal = true, true
	spec.AffinitySeconds = 10800
	spec.HealthCheckNodePort = 32000

	view := Resolve(testKey, spec, nil, facts())
	if view.Key != testKey || view.HealthCheckNodePort != 32000 {
		t.Errorf("got %+v", view)
	}
	eachFamily(t, func(t *testing.T, family Family) {
		if len(view.Ports[family]) != len(spec.Ports) {
			t.Fatalf("%d ports, want %d", len(view.Ports[family]), len(spec.Ports))
		}
		for i, want := range spec.Ports {
			port := &view.Ports[family][i]
			if got := (Port{Name: port.Name, Protocol: port.Protocol, Port: port.Port, NodePort: port.NodePort}); got != want {
				t.Errorf("port %+v, want %+v, in API order", got, want)
			}
			if port.ClusterIP != spec.ClusterIPs[family] ||
				!slices.Equal(port.ExternalIPs, spec.ExternalIPs[family]) ||
				!slices.Equal(port.LoadBalancerVIPs, spec.LoadBalancerVIPs[family]) ||
				!slices.Equal(port.SourceRanges, spec.SourceRanges[family]) {
				t.Errorf("addresses of another family: %+v", port)
			}
			if !port.InternalLocal || !port.ExternalLocal || port.AffinitySeconds != 10800 {
				t.Errorf("policies lost: %+v", port)
			}
		}
	})
}

// TestResolve_SeveralSlices: endpoints of all slices count, and moving an endpoint between slices never removes or
// duplicates it.
func TestResolve_SeveralSlices(t *testing.T) {
	eachFamily(t, func(t *testing.T, family Family) {
		states := [][]*Slice{
			{newSlice(t, family, "s1", "a R; b R"), newSlice(t, family, "s2", "c R")},
			{newSlice(t, family, "s1", "a R; b R"), newSlice(t, family, "s2", "c R; b R")},
			{newSlice(t, family, "s1", "a R"), newSlice(t, family, "s2", "c R; b R")},
		}
		for i, from := range states {
			view := Resolve(testKey, newSpec(), from, facts())
			if got := letters(view.Ports[family][0].Cluster); got != "a b c" {
				t.Errorf("state %d: Cluster = %q, want \"a b c\"", i, got)
			}
		}
	})
}

// TestResolve_ServiceWithoutPorts: the view of a Service without ports has no ports, no health port and no ready local
// endpoint.
func TestResolve_ServiceWithoutPorts(t *testing.T) {
	spec := policySpec("Cluster", "Local")
	spec.Ports = nil
	view := Resolve(testKey, spec, []*Slice{newSlice(t, IPv4, "s1", "n R")}, facts())
	for _, family := range Families {
		if len(view.Ports[family]) != 0 || view.HealthPort(family) != 0 || view.ReadyLocal[family] != 0 {
			t.Errorf("%s: got %+v", family, view)
		}
	}
}

func TestResolve_RandomScenarios(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	any, topologies := 0, map[Topology]int{}
	for range 3000 {
		bytes := make(choices, 600)
		for i := range bytes {
			bytes[i] = byte(r.Uint32())
		}
		s := newScenario(&bytes)
		s.check(t, r)
		if t.Failed() {
			t.Fatalf("spec %+v, facts %+v", s.spec, s.facts)
		}
		view := s.resolve()
		for _, family := range Families {
			for _, port := range view.Ports[family] {
				topologies[port.Topology]++
				if port.HasAny {
					any++
				}
			}
		}
	}
	// The property is worth little if the generator misses a case.
	if any < 100 || len(topologies) != 6 {
		t.Errorf("one-sided scenarios: %d ports with endpoints, topologies %v", any, topologies)
	}
}

// TestResolve_InputsUnchanged: Resolve does not change its inputs, which may be shared.
func TestResolve_InputsUnchanged(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 300 {
		bytes := make(choices, 600)
		for i := range bytes {
			bytes[i] = byte(r.Uint32())
		}
		again := append(choices(nil), bytes...)
		used, untouched := newScenario(&bytes), newScenario(&again)
		used.resolve()
		if !used.spec.Equal(untouched.spec) || !used.facts.Equal(untouched.facts) {
			t.Fatal("spec or facts changed")
		}
		for i := range used.from {
			if !used.from[i].Equal(untouched.from[i]) {
				t.Fatalf("slice %d changed", i)
			}
		}
	}
}

func FuzzResolve(f *testing.F) {
	r := rand.New(rand.NewPCG(1, 2))
	for size := range 8 {
		seed := make([]byte, 64*size)
		for i := range seed {
			seed[i] = byte(r.Uint32())
		}
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c := choices(data)
		newScenario(&c).check(t, rand.New(rand.NewPCG(uint64(len(data)), 0)))
	})
}

// TestResolve_ExternalIPInServiceCIDRIgnored: an external IP within a ServiceCIDR is not served, unless the facts allow
// it. A tenant could otherwise take an address that the API server allocates to another Service.
func TestResolve_ExternalIPInServiceCIDRIgnored(t *testing.T) {
	addr := netip.MustParseAddr
	spec := &Spec{Key: Key{Namespace: "ns", Name: "a"}, Ports: []Port{{Port: 80}, {Name: "b", Port: 81}},
		ClusterIPs: PerFamily[netip.Addr]{addr("10.96.0.1"), addr("fd00:96::1")},
		ExternalIPs: PerFamily[[]netip.Addr]{{addr("10.96.0.50"), addr("192.0.2.1"), addr("10.97.0.50")},
			{addr("fd00:96::50")}}}
	facts := &NodeFacts{Name: "n1", ServiceCIDRs: PerFamily[[]netip.Prefix]{
		{netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("10.97.0.0/16")}, {netip.MustParsePrefix("fd00:96::/112")}}}
	served := func() PerFamily[int] {
		view := Resolve(spec.Key, spec, nil, facts)
		var counts PerFamily[int]
		for _, family := range Families {
			for _, port := range view.Ports[family] {
				counts[family] += len(port.ExternalIPs)
			}
		}
		return counts
	}
	if got, want := served(), (PerFamily[int]{2, 0}); got != want {
		t.Errorf("external IPs of both ports: %v, want %v", got, want)
	}
	if len(spec.ExternalIPs[IPv4]) != 3 {
		t.Error("the spec has been changed")
	}
	facts.ServiceCIDRs[IPv4] = facts.ServiceCIDRs[IPv4][:1]
	if got, want := served(), (PerFamily[int]{4, 0}); got != want {
		t.Errorf("without the second range: %v, want %v", got, want)
	}
	facts.ExternalIPsInServiceCIDR = true
	if got, want := served(), (PerFamily[int]{6, 2}); got != want {
		t.Errorf("allowed: %v, want %v", got, want)
	}
	if (&NodeFacts{}).Equal(&NodeFacts{ExternalIPsInServiceCIDR: true}) {
		t.Error("facts that lead to other rules are equal")
	}
}

// TestResolve_PortsNotServedOutside: a port that is not served outside has no frontend and no object at external IPs
// and load balancer IPs.
func TestResolve_PortsNotServedOutside(t *testing.T) {
	spec := claimant()
	spec.Ports[0].NotOutside = true
	view := Resolve(spec.Key, spec, nil, &NodeFacts{})
	for i, want := range []int{0, 5} {
		if p := &view.Ports[IPv4][i]; len(p.ExternalIPs)+len(p.LoadBalancerVIPs) != want || !p.ClusterIP.IsValid() || (p.NodePort != 0) != (i == 0) {
			t.Errorf("port %d: %+v", i, p)
		}
	}
	if e := Resolve(spec.Key, spec, nil, limited(1, SlotsEach)).Excess; e != (Excess{IPv4, 8, 1, 7}) {
		t.Errorf("with a limit: %+v", e)
	}
}

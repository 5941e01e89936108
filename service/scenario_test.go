// SPDX-License-Identifier: Apache-2.0

package service

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"
)

// scenario is an arbitrary but well-formed input of Resolve. It is drawn from
// small pools, so that collisions of every kind are frequent.
type scenario struct {
	spec  *Spec
	from  []*Slice
	facts *NodeFacts
}

// choices turns bytes into decisions; when they run out, every answer is 0.
type choices []byte

func (c *choices) upTo(n int) int {
	if len(*c) == 0 {
		return 0
	}
	first := (*c)[0]
	*c = (*c)[1:]
	return int(first) % n
}

func (c *choices) yes() bool { return c.upTo(2) == 1 }

func oneOf[T any](c *choices, pool ...T) T { return pool[c.upTo(len(pool))] }

// some takes any part of a pool.
func some[T any](c *choices, pool ...T) (part []T) {
	for _, element := range pool {
		if c.yes() {
			part = append(part, element)
		}
	}
	return part
}

func newScenario(c *choices) scenario {
	s := scenario{facts: facts(), spec: newSpec()}
	s.facts.Zone = oneOf(c, "za", "zb", "")
	spec := s.spec
	spec.Created = time.Unix(int64(c.upTo(2)), 0)
	spec.InternalLocal, spec.ExternalLocal = c.yes(), c.yes()
	spec.HealthCheckNodePort = oneOf[uint16](c, 0, 32000)
	spec.Ports = nil
	for i := range c.upTo(4) {
		spec.Ports = append(spec.Ports, Port{
			// The number in the name keeps ports apart, as reducing does.
			Name:     fmt.Sprint(oneOf(c, "", "p"), i/2),
			Protocol: Protocol(i % 2),
			Port:     uint16(80 + c.upTo(3)),
			NodePort: oneOf[uint16](c, 0, 30080),
		})
	}
	for _, family := range Families {
		if c.upTo(4) == 3 {
			spec.ClusterIPs[family] = netip.Addr{}
		}
		spec.ExternalIPs[family] = some(c, address(family, 'x'))
		spec.LoadBalancerVIPs[family] = some(c, address(family, 'y'))
		spec.SourceRanges[family] = some(c, netip.PrefixFrom(address(family, 'b'), family.Bits()-1).Masked())
	}
	for i := range c.upTo(5) {
		s.from = append(s.from, newScenarioSlice(c, fmt.Sprintf("slice-%d", i)))
	}
	if c.yes() {
		spec.Zones = ZonePolicy{MinEndpoints: oneOf[uint16](c, 0, 3), Share: oneOf[uint8](c, 0, 50, 80)}
	}
	if c.upTo(3) == 2 {
		if c.yes() {
			spec.Adaptation.SlowStart = time.Minute
		}
		s.from = append(s.from, ObservedSlice(testKey, newScenarioObserved(c)))
	}
	return s
}

// newScenarioObserved observes some of the endpoints.
func newScenarioObserved(c *choices) *Observed {
	o := &Observed{}
	for _, family := range Families {
		for i := range byte(12) {
			for port := range 3 {
				if c.yes() {
					o.Endpoints = append(o.Endpoints, ObservedEndpoint{
						AddrPort: netip.AddrPortFrom(address(family, 'a'+i), uint16(8079+port)), Percent: oneOf[uint16](c, 0, 10, 100, 400), Suspect: c.yes(),
					})
				}
			}
		}
	}
	slices.SortFunc(o.Endpoints, func(a, b ObservedEndpoint) int { return a.AddrPort.Compare(b.AddrPort) })
	return o
}

func newScenarioSlice(c *choices, name string) *Slice {
	family := Family(c.upTo(2))
	s := &Slice{Service: testKey, Name: name, Family: family, Weight: uint16(c.upTo(3)), Drains: c.upTo(4) == 3}
	for range c.upTo(4) {
		s.Ports = append(s.Ports, SlicePort{
			Name:     fmt.Sprint(oneOf(c, "", "p"), c.upTo(2)),
			Protocol: Protocol(c.upTo(2)),
			Port:     uint16(8079 + c.upTo(3)),
		})
	}
	for range c.upTo(9) {
		s.Endpoints = append(s.Endpoints, SliceEndpoint{
			Addr:        address(family, 'a'+byte(c.upTo(12))),
			Ready:       c.yes(),
			Serving:     c.yes(),
			Terminating: c.yes(),
			Location: &Location{
				NodeName: oneOf(c, thisNode, "n2", ""),
				ForZones: some(c, "za", "zb"),
				ForNodes: some(c, thisNode, "n2"),
			},
		})
	}
	return s
}

// shuffled returns the same scenario as it might arrive in another order: slices
// in any order, and the endpoints within a slice unless it holds one address
// twice (then their order is what decides between equals).
func (s scenario) shuffled(r *rand.Rand) scenario {
	s.from = slices.Clone(s.from)
	r.Shuffle(len(s.from), func(i, j int) { s.from[i], s.from[j] = s.from[j], s.from[i] })
	for i, slice := range s.from {
		addrs := map[netip.Addr]bool{}
		for _, e := range slice.Endpoints {
			addrs[e.Addr] = true
		}
		if len(addrs) < len(slice.Endpoints) {
			continue
		}
		other := *slice
		other.Endpoints = slices.Clone(slice.Endpoints)
		r.Shuffle(len(other.Endpoints), func(i, j int) {
			other.Endpoints[i], other.Endpoints[j] = other.Endpoints[j], other.Endpoints[i]
		})
		s.from[i] = &other
	}
	return s
}

func (s scenario) resolve() View { return Resolve(testKey, s.spec, s.from, s.facts) }

// check states everything that holds for the view of any scenario.
func (s scenario) check(t *testing.T, r *rand.Rand) {
	t.Helper()
	view := s.resolve()
	if again := s.resolve(); !view.Equal(&again) {
		t.Errorf("equal inputs, different views:\n%+v\n%+v", view, again)
	}
	for range 3 {
		if other := s.shuffled(r).resolve(); !view.Equal(&other) {
			t.Errorf("the order of arrival matters:\n%+v\n%+v", view, other)
		}
	}
	for _, family := range Families {
		if served := s.spec.ClusterIPs[family].IsValid() && len(s.spec.Ports) > 0; !served {
			if len(view.Ports[family]) != 0 || view.ReadyLocal[family] != 0 {
				t.Errorf("%s is not to be served: %+v", family, view)
			}
			continue
		}
		if len(view.Ports[family]) != len(s.spec.Ports) {
			t.Errorf("%s: %d ports, want %d", family, len(view.Ports[family]), len(s.spec.Ports))
		}
		for i := range view.Ports[family] {
			s.checkPort(t, family, &view.Ports[family][i])
		}
	}
}

// checkWeights compares the weights of the Cluster policy with what the reference wants of them.
func (s scenario) checkWeights(t *testing.T, all []Endpoint, chances map[string]float64) {
	t.Helper()
	for _, e := range all {
		want := chances[e.String()]
		if got := float64(e.Share()) / float64(TotalShare(all)); math.Abs(got-want) > 0.001 {
			t.Errorf("%s has %.4f of the weights, want %.4f", e, got, want)
		}
	}
}

func (s scenario) checkPort(t *testing.T, family Family, p *PortView) {
	t.Helper()
	want := refer(s.spec, p, family, s.from, s.facts)
	got := expected{cluster: texts(p.Cluster), local: texts(p.Local), serving: texts(p.Serving), any: p.HasAny}
	if got.any != want.any || !slices.Equal(got.cluster, want.cluster) ||
		!slices.Equal(got.local, want.local) || !slices.Equal(got.serving, want.serving) {
		t.Errorf("port %s/%s over %s:\n got any %v, %s\nwant any %v, %s",
			p.Name, p.Protocol, family, got.any, got, want.any, want)
	}
	s.checkWeights(t, p.Cluster, want.chances)
	if p.HasAny && p.UsesCluster() != (len(p.Cluster) > 0) {
		t.Errorf("something is usable, UsesCluster is %v, Cluster is %v", p.UsesCluster(), p.Cluster)
	}
	if !p.HasAny && len(p.Reachable()) > 0 {
		t.Errorf("nothing is usable, yet reachable: %v", p.Reachable())
	}
	if (p.Topology == TopologySameNode || p.Topology == TopologySameZone) && len(p.Cluster) == 0 {
		t.Errorf("%s leaves nothing", p.Topology)
	}
	for _, e := range p.Local {
		if !e.Local {
			t.Errorf("%s is in Local and not local", e)
		}
	}
	reachable := p.Reachable()
	if !subset(p.Cluster, reachable) || !subset(p.Local, reachable) {
		t.Errorf("Reachable %v lacks some of %v, %v", reachable, p.Cluster, p.Local)
	}
	for _, set := range [][]Endpoint{p.Cluster, p.Local, p.Serving, reachable} {
		for i := 1; i < len(set); i++ {
			if set[i-1].Compare(set[i]) >= 0 {
				t.Errorf("not sorted or not unique: %v", set)
			}
		}
	}
}

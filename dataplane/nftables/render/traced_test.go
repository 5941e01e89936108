// SPDX-License-Identifier: Apache-2.0

package render_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/dataplane/nftables/render"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/nftmodel"
	"github.com/sluice-proxy/sluice/test/writertest"
)

// traced is a node on a model kernel, which tells the probability of each outcome and has a clock
// that tests set. The scenarios cannot: they count real packets in real time.
type traced struct {
	testing.TB
	writertest.Fixture
	pipeline *writertest.Pipeline
	*nftmodel.Kernel
	random *rand.Rand
}

func newTraced(t *testing.T, family service.Family) *traced {
	t.Helper()
	world, kernel := writertest.NewFixture(family), nftmodel.NewKernel()
	kernel.SetAddresses(world.Node, world.Second)
	harness := writertest.Harness{Family: family, Renderer: render.NewRenderer(family, render.Options{MasqueradeBit: 14})}
	return &traced{
		TB: t, Fixture: world, Kernel: kernel, random: rand.New(rand.NewPCG(1, 0)),
		pipeline: writertest.NewPipeline(harness, kernel.Writer(family), world.Facts()),
	}
}

// apply serves the Service and writes.
func (s *traced) apply(t *testing.T, spec service.Spec, slices ...*service.Slice) {
	t.Helper()
	s.pipeline.Serve(spec, slices...)
	s.pipeline.Converge(t)
}

// choose decides as a fair kernel does.
func (s *traced) choose(probability float64) bool { return s.random.Float64() < probability }

// packet is the first one of a connection of a pod to an address at the Service's port.
func (s *traced) packet(from, to netip.Addr) nftmodel.Packet {
	return nftmodel.Packet{
		Src: netip.AddrPortFrom(from, 40000), Dst: netip.AddrPortFrom(to, 80), Protocol: service.TCP, In: "veth",
	}
}

// endpoints are so many addresses.
func (s *traced) endpoints(count int) (all []netip.Addr) {
	for addr := s.B; len(all) < count; addr = addr.Next() {
		all = append(all, addr)
	}
	return all
}

// TestTraced_BalancingIsFair: all endpoints have equal shares, within the advantage of slot 0 that package slots limits
// to 1 % of a share.
func TestTraced_BalancingIsFair(t *testing.T) {
	const advantageMax = 0.01
	for _, family := range service.Families {
		for _, count := range []int{1, 2, 3, 7, 100} {
			t.Run(fmt.Sprintf("%v/%d", family, count), func(t *testing.T) {
				s := newTraced(t, family)
				s.apply(t, s.Spec(), s.Slice(s.endpoints(count)...))
				outcomes := s.Outcomes(s.packet(s.Pod, s.ClusterIP))
				if len(outcomes) != count {
					t.Fatalf("%d outcomes, want %d", len(outcomes), count)
				}
				sum := 0.0
				for _, o := range outcomes {
					sum += o.Probability
					if o.Verdict != nftmodel.Delivered || math.Abs(o.Probability*float64(count)-1) > advantageMax {
						t.Errorf("%v to %v with probability %v, want 1/%d", o.Verdict, o.To, o.Probability, count)
					}
				}
				if math.Abs(sum-1) > 1e-9 {
					t.Errorf("probabilities sum to %v", sum)
				}
			})
		}
	}
}

// TestTraced_AffinityTimeout: affinity ends with its timeout (S-AFF-03 and S-AFF-04, with a clock that the test sets).
func TestTraced_AffinityTimeout(t *testing.T) {
	s := newTraced(t, service.IPv4)
	clock := s.Spec().Created
	s.SetClock(func() time.Time { return clock })
	spec := s.Spec()
	spec.AffinitySeconds = 10
	s.apply(t, spec, s.Slice(s.A, s.B, s.C))
	packet := s.packet(s.Pod, s.ClusterIP)
	first := s.Trace(packet, s.choose).To
	for range 12 { // every five seconds for a minute
		clock = clock.Add(5 * time.Second)
		if got := s.Outcomes(packet); len(got) != 1 || got[0].To != first {
			t.Fatalf("%v within the timeout, want %v alone", got, first)
		}
		s.Trace(packet, s.choose)
	}
	clock = clock.Add(11 * time.Second)
	if got := len(s.Outcomes(packet)); got != 3 {
		t.Errorf("%d endpoints are possible after the timeout, want 3", got)
	}
}

// TestTraced_AffinityConstantRuleCount: with affinity, the number of rules that a packet passes does not grow with the
// endpoints, whether its client is known, new, or knows a removed endpoint.
func TestTraced_AffinityConstantRuleCount(t *testing.T) {
	visited := map[string]int{}
	for _, count := range []int{10, 1000} {
		s := newTraced(t, service.IPv4)
		spec := s.Spec()
		spec.AffinitySeconds = 10
		endpoints := s.endpoints(count)
		s.apply(t, spec, s.Slice(endpoints...))
		packet := s.packet(s.Pod, s.ClusterIP)
		smallest := func(float64) bool { return true } // slot 0, which is never empty
		at := func(what string) netip.Addr {
			trace := s.Trace(packet, smallest)
			if was, known := visited[what]; trace.Verdict != nftmodel.Delivered || known && was != trace.RulesVisited {
				t.Errorf("%s, %d endpoints: %v after %d rules, want as many as with 10: %d", what, count, trace.Verdict, trace.RulesVisited, was)
			}
			visited[what] = trace.RulesVisited
			return trace.To.Addr()
		}
		chosen := at("new")
		if again := at("known"); again != chosen {
			t.Errorf("to %v, then to %v", chosen, again)
		}
		s.apply(t, spec, s.Slice(slices.DeleteFunc(endpoints, func(a netip.Addr) bool { return a == chosen })...))
		if again := at("gone"); again == chosen || at("known") != again {
			t.Errorf("to %v, which has gone, or not twice to %v", chosen, again)
		}
	}
	t.Log(visited)
}

// TestTraced_AffinityTwoPolicies: a client of frontends with different policies stays with one endpoint at each of
// them, and with the same endpoint at both if possible.
func TestTraced_AffinityTwoPolicies(t *testing.T) {
	s := newTraced(t, service.IPv4)
	spec := s.Exposed()
	spec.AffinitySeconds, spec.InternalLocal = 10, true
	s.apply(t, spec, s.Slice(s.A, s.B, s.C)) // A is on the node
	packet := s.packet(s.Pod, s.ClusterIP)
	from := func(client netip.AddrPort, to netip.Addr) netip.Addr {
		packet.Src, packet.Dst = client, netip.AddrPortFrom(to, 80)
		return s.Trace(packet, s.choose).To.Addr()
	}
	client, apart := packet.Src, 0
	for range 20 {
		client = netip.AddrPortFrom(client.Addr().Next(), client.Port())
		first := from(client, s.VIP)
		if first != s.A {
			apart++
		}
		for range 3 {
			if local, again := from(client, s.ClusterIP), from(client, s.VIP); local != s.A || again != first {
				t.Fatalf("%v: to %v and %v, want %v and %v", client, local, again, s.A, first)
			}
		}
		client = netip.AddrPortFrom(client.Addr().Next(), client.Port())
		if local, all := from(client, s.ClusterIP), from(client, s.VIP); local != s.A || all != s.A {
			t.Fatalf("%v: to %v and %v, want %v at both", client, local, all, s.A)
		}
	}
	if apart == 0 {
		t.Error("no client was at different endpoints: this proves nothing")
	}
}

// TestTraced_HairpinMasqueraded: an endpoint that is sent to itself sees an address of the node, and any other endpoint
// sees its client's address.
func TestTraced_HairpinMasqueraded(t *testing.T) {
	for _, family := range service.Families {
		s := newTraced(t, family)
		s.apply(t, s.Spec(), s.Slice(s.A, s.B))
		for _, o := range s.Outcomes(s.packet(s.A, s.ClusterIP)) {
			if o.Masqueraded != (o.To.Addr() == s.A) {
				t.Errorf("%v: to %v, masqueraded %t", family, o.To, o.Masqueraded)
			}
		}
	}
}

// TestTraced_RemotePodHairpin: a pod of another node that enters by this node and is sent to itself sees an address of
// the node, as long as one of the Services with that endpoint has the Local policy.
func TestTraced_RemotePodHairpin(t *testing.T) {
	for _, family := range service.Families {
		s := newTraced(t, family)
		spec, other := s.Exposed(), s.Exposed()
		spec.ExternalLocal, other.ExternalLocal = true, true
		other.Key.Name, other.Ports[0].NodePort, other.ClusterIPs[family] = "svc2", 30081, s.OtherClusterIP
		other.LoadBalancerVIPs[family], other.ExternalIPs[family] = nil, nil
		slice := s.Slice(s.A, s.B, s.C)
		slice.Service = other.Key
		s.pipeline.Serve(other, slice)
		s.apply(t, spec, s.Slice(s.A, s.B, s.C))
		check := func(when string, to netip.Addr, port uint16) {
			t.Helper()
			packet := s.packet(s.C, to)
			packet.Dst, packet.In = netip.AddrPortFrom(to, port), "eth0"
			outcomes := s.Outcomes(packet)
			if len(outcomes) != 3 {
				t.Errorf("%v, %s: %d outcomes, want 3", family, when, len(outcomes))
			}
			for _, o := range outcomes {
				if o.Masqueraded != (o.To.Addr() == s.C) {
					t.Errorf("%v, %s: from %v to %v, masqueraded %t", family, when, s.C, o.To, o.Masqueraded)
				}
			}
		}
		check("load balancer", s.VIP, 80)
		check("node port", s.Node, 30080)
		check("the other Service", s.Node, 30081)
		spec.ExternalLocal = false
		s.apply(t, spec, s.Slice(s.A, s.B, s.C))
		check("after the first Service has policy Cluster", s.Node, 30081)
	}
}

package conformance

import (
	"fmt"
	"math"
	"net/netip"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/iptables"
	"github.com/sluice-proxy/sluice/dataplane/memory"
	"github.com/sluice-proxy/sluice/service"
)

// memoryHarness is the iptables backend on an in-memory kernel.
func memoryHarness(family service.Family) Harness {
	return iptablesHarness(family, func(_ *testing.T, world Fixture) Node {
		return memoryNode(memory.NewKernel(family), world)
	})
}

func memoryNode(kernel *memory.Kernel, world Fixture) Node {
	return Node{
		NewWriter: func() dataplane.Writer {
			return iptables.NewWriter(world.Family, kernel, iptables.WriterConfig{})
		},
		Probe:   NewTracer(kernel, world, 1),
		Meddler: iptablesMeddler{tool: kernel, family: world.Family},
	}
}

func TestIptablesOnMemory(t *testing.T) {
	for _, family := range service.Families {
		t.Run(family.String(), func(t *testing.T) { Run(t, memoryHarness(family)) })
	}
}

// memoryScene opens a scene together with its kernel.
func memoryScene(t *testing.T, family service.Family) (*scene, *memory.Kernel, *Tracer) {
	t.Helper()
	kernel := memory.NewKernel(family)
	s := openScene(t, iptablesHarness(family, func(_ *testing.T, world Fixture) Node {
		return memoryNode(kernel, world)
	}))
	t.Cleanup(s.asking.Wait)
	return s, kernel, s.node.Probe.(*Tracer)
}

// TestBalancingIsFair: S-CIP-17, exactly: every endpoint is chosen with the same
// probability, up to what ten decimals and 31 random bits can say.
func TestBalancingIsFair(t *testing.T) {
	for _, family := range service.Families {
		for _, count := range []int{1, 2, 3, 7, 100} {
			t.Run(fmt.Sprintf("%v/%d", family, count), func(t *testing.T) {
				s, kernel, tracer := memoryScene(t, family)
				var endpoints []netip.Addr
				for addr := s.B; len(endpoints) < count; addr = addr.Next() {
					endpoints = append(endpoints, addr)
				}
				s.apply(s.Spec(), s.Slice(endpoints...))
				outcomes := kernel.Outcomes(tracer.Packet(Question{From: FromPod, To: s.clusterIP()}))
				if len(outcomes) != count {
					t.Fatalf("%d outcomes, want %d", len(outcomes), count)
				}
				for _, o := range outcomes {
					if o.Verdict != memory.Delivered || math.Abs(o.Probability*float64(count)-1) > 1e-6 {
						t.Errorf("%v to %v with probability %v, want 1/%d", o.Verdict, o.To, o.Probability, count)
					}
				}
			})
		}
	}
}

// TestServiceTrafficPassesAClosedForwardChain: S-NP-18.
func TestServiceTrafficPassesAClosedForwardChain(t *testing.T) {
	for _, family := range service.Families {
		t.Run(family.String(), func(t *testing.T) {
			s, kernel, _ := memoryScene(t, family)
			if err := kernel.Restore(t.Context(), []byte("*filter\n:FORWARD DROP [0:0]\nCOMMIT\n")); err != nil {
				t.Fatal(err)
			}
			s.apply(s.Exposed(), s.Slice(s.B))
			s.expect(FromOutside, s.nodePort(), reaches(NodeSource, s.B))
			s.expect(FromOutside, netip.AddrPortFrom(s.B, endpointPort), silence)
		})
	}
}

// TestHealthCheckPassesAClosedInputChain: S-HC-09.
func TestHealthCheckPassesAClosedInputChain(t *testing.T) {
	const healthPort = 32000
	for _, family := range service.Families {
		t.Run(family.String(), func(t *testing.T) {
			s, kernel, _ := memoryScene(t, family)
			if err := kernel.Restore(t.Context(), []byte("*filter\n:INPUT DROP [0:0]\nCOMMIT\n")); err != nil {
				t.Fatal(err)
			}
			spec := s.externalLocal()
			spec.HealthCheckNodePort = healthPort
			s.apply(spec, s.Slice(s.A))
			// Nobody listens there in this world; the node says so itself.
			s.expect(FromOutside, netip.AddrPortFrom(s.Node, healthPort), refuses)
			s.expect(FromOutside, netip.AddrPortFrom(s.Node, healthPort+1), silence)
		})
	}
}

// TestUnusedPortIsLeftAlone: S-CIP-12: other ports of a ClusterIP follow the
// ordinary routing.
func TestUnusedPortIsLeftAlone(t *testing.T) {
	s, kernel, tracer := memoryScene(t, service.IPv4)
	s.apply(s.Spec(), s.Slice(s.A))
	unused := netip.AddrPortFrom(s.ClusterIP, servicePort+1)
	trace := kernel.Trace(tracer.Packet(Question{From: FromPod, To: unused}), tracer.choose)
	if trace.Verdict != memory.Untouched || trace.Masqueraded || trace.To != unused {
		t.Errorf("got %v to %v, want untouched", trace.Verdict, trace.To)
	}
}

// TestAffinityEndsWithItsTimeout: S-AFF-03, S-AFF-04, with the clock moved by
// hand.
func TestAffinityEndsWithItsTimeout(t *testing.T) {
	s, kernel, tracer := memoryScene(t, service.IPv4)
	clock := s.Spec().Created
	kernel.SetClock(func() time.Time { return clock })
	spec := s.Spec()
	spec.AffinitySeconds = 10
	s.apply(spec, s.Slice(s.A, s.B, s.C))
	packet := tracer.Packet(Question{From: FromPod, To: s.clusterIP()})
	first := kernel.Trace(packet, tracer.choose).To
	for range 12 { // every five seconds for a minute
		clock = clock.Add(5 * time.Second)
		if got := kernel.Trace(packet, tracer.choose).To; got != first {
			t.Fatalf("%v answered after %v within the timeout", got, first)
		}
	}
	clock = clock.Add(11 * time.Second)
	if got := len(kernel.Outcomes(packet)); got != 3 {
		t.Errorf("%d endpoints are possible after the timeout, want 3", got)
	}
}

// TestForeignRulesKeepTheirOrder uses the in-memory kernel's own guard, which
// knows every rule that was there before.
func TestForeignRulesKeepTheirOrder(t *testing.T) {
	for _, family := range service.Families {
		t.Run(family.String(), func(t *testing.T) {
			s, kernel, _ := memoryScene(t, family)
			s.node.Meddler.Plant(t)
			guard := kernel.Guard()
			s.apply(s.Exposed(), s.Slice(s.A, s.B))
			s.apply(s.externalLocal(), s.Slice(s.B))
			s.Forget(serviceKey)
			s.Converge(t)
			if err := guard.Check(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestHalfLandedWritesLetNothingThrough ends a restore after each number of its
// tables, told as refused and as unknown. Whatever has landed, packets to a
// Service that exists before and after are answered, refused or dropped.
func TestHalfLandedWritesLetNothingThrough(t *testing.T) {
	for _, family := range service.Families {
		for _, outcome := range []dataplane.Outcome{dataplane.Busy, dataplane.Rejected, dataplane.Unknown} {
			t.Run(fmt.Sprintf("%v/%v", family, outcome), func(t *testing.T) { halfLanded(t, family, outcome) })
		}
	}
}

// tablesMax is above the number of tables in any input.
const tablesMax = 5

func halfLanded(t *testing.T, family service.Family, outcome dataplane.Outcome) {
	s, kernel, _ := memoryScene(t, family)
	states := [][]netip.Addr{{}, {s.A}, {s.B}, {s.A, s.B}, {}, {s.A, s.C}}
	for tables := range tablesMax {
		for i, endpoints := range states {
			spec := s.Exposed()
			spec.ExternalLocal, spec.InternalLocal = i%2 == 0, i%3 == 0
			s.Serve(spec, s.Slice(endpoints...))
			if i > 0 { // the first state is that of a new Service
				kernel.SetFaults(func(c memory.Call) memory.Fault {
					if c.Input == nil {
						return memory.Fault{}
					}
					return memory.Fault{Outcome: outcome, Tables: tables}
				})
				if got := s.Write(t.Context(), t, s.Plan()); got.Outcome != outcome {
					t.Errorf("after %d tables: got %v, want %v", tables, got, outcome)
				}
				s.expectFates(s.questions(), Answered, Refused, Silent)
				s.asking.Wait()
				kernel.SetFaults(nil)
			}
			s.Converge(t)
			s.expectEqual("after the next attempt")
		}
		s.Forget(serviceKey)
		s.Converge(t)
	}
}

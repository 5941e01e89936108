// SPDX-License-Identifier: Apache-2.0

package cleaner

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-proxy/sluice/service"
)

// house is a cleaner with two kernels in memory, in virtual time.
type house struct {
	*testing.T
	*Cleaner
	kernels service.PerFamily[*fake]
	cancel  context.CancelFunc
	ended   chan error

	mu     sync.Mutex
	events []Swept
}

// inHouse runs a test with a running cleaner.
func inHouse(t *testing.T, test func(*house)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h := &house{T: t, ended: make(chan error, 1)}
		cleaner, err := New(Config{
			NodePorts: func(service.Family) service.NodePortAddresses { return service.NodePortAddresses{All: true} },
			Drains:    true,
			Listen: func(e Swept) {
				h.mu.Lock()
				defer h.mu.Unlock()
				h.events = append(h.events, e)
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		h.Cleaner = cleaner
		for family, k := range cleaner.families {
			h.kernels[family] = newFake()
			k.open = func() kernel { return h.kernels[family] }
		}
		var ctx context.Context
		ctx, h.cancel = context.WithCancel(t.Context())
		go func() { h.ended <- cleaner.Run(ctx) }()
		test(h)
		h.cancel()
		if err := <-h.ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

// tell passes a view of the tests' Service to the cleaner.
func (h *house) tell(endpoints ...string) {
	h.Programmed(context.Background(), service.IPv4, viewOf("dns", clusterIP, endpoints...))
}

func viewOf(name, frontend string, endpoints ...string) service.View {
	port := service.PortView{Protocol: service.UDP, Port: at(frontend).Port(), ClusterIP: at(frontend).Addr()}
	for _, e := range endpoints {
		port.Serving = append(port.Serving, service.Endpoint{AddrPort: at(e)})
	}
	view := service.View{Key: named(name)}
	view.Ports[service.FamilyOf(port.ClusterIP)] = []service.PortView{port}
	return view
}

// taken returns the events since the last call.
func (h *house) taken() []Swept {
	h.mu.Lock()
	defer h.mu.Unlock()
	events := h.events
	h.events = nil
	return events
}

// settle lets virtual time pass until nothing is left to do.
func (h *house) settle() []Swept {
	time.Sleep(time.Minute)
	synctest.Wait()
	return h.taken()
}

func (h *house) expectFlows(when string, want ...string) {
	h.Helper()
	if got := h.kernels[service.IPv4].names(); !slices.Equal(got, want) {
		h.Errorf("%s: flows %v, want %v", when, got, want)
	}
}

func TestNew_InvalidConfig(t *testing.T) {
	if _, err := New(Config{}); err == nil {
		t.Error("a cleaner that does not know where node ports answer was accepted")
	}
}

// TestCleaner_ChangesShareSweep: changes that arrive within the gathering time share one sweep.
func TestCleaner_ChangesShareSweep(t *testing.T) {
	inHouse(t, func(h *house) {
		h.kernels[service.IPv4].add("stale", clusterIP, endpointA)
		for range 10 {
			h.tell(endpointA)
			time.Sleep(time.Millisecond)
			h.tell(endpointB)
		}
		if events := h.taken(); len(events) > 0 {
			t.Errorf("swept before the changes were gathered: %+v", events)
		}
		began := time.Now()
		events := h.settle()
		if len(events) != 1 || events[0].Deleted != 1 || events[0].Err != nil {
			t.Errorf("after %v: %+v, want one sweep that deletes one flow", time.Since(began), events)
		}
		h.expectFlows("after the sweep")
	})
}

// TestCleaner_SweepsAfterGatheringTime: the cleaner sweeps a change as soon as its gathering time is over.
func TestCleaner_SweepsAfterGatheringTime(t *testing.T) {
	inHouse(t, func(h *house) {
		h.kernels[service.IPv4].add("stale", clusterIP, endpointA)
		h.tell(endpointB)
		time.Sleep(gatherDefault)
		synctest.Wait()
		h.expectFlows("after the gathering time")
	})
}

// TestCleaner_OvertakenFrontends: a sweep deletes the stale flow of an external IP that was added and removed since the
// last sweep.
func TestCleaner_OvertakenFrontends(t *testing.T) {
	inHouse(t, func(h *house) {
		h.kernels[service.IPv4].add("stale", external, endpointA)
		view := viewOf("dns", clusterIP, endpointA)
		view.Ports[service.IPv4][0].ExternalIPs = append(view.Ports[service.IPv4][0].ExternalIPs, at(external).Addr())
		h.Programmed(context.Background(), service.IPv4, view)
		h.tell(endpointA)
		h.settle()
		h.expectFlows("after the sweep")
	})
}

// TestCleaner_KernelFailureForgetsNothing: while the kernel fails, the cleaner forgets no change, not even one that
// arrives between two attempts, and its pauses grow.
func TestCleaner_KernelFailureForgetsNothing(t *testing.T) {
	broken := errors.New("broken")
	failures := map[string]func(*fake, func() bool){
		"listing": func(f *fake, fails func() bool) {
			f.listing = func(int) error {
				if fails() {
					return broken
				}
				return nil
			}
		},
		"removing": func(f *fake, fails func() bool) {
			f.removing = func(int, string) error {
				if fails() {
					return broken
				}
				return nil
			}
		},
	}
	for name, install := range failures {
		t.Run(name, func(t *testing.T) {
			inHouse(t, func(h *house) {
				f := h.kernels[service.IPv4]
				left := 5
				install(f, func() bool { left--; return left >= 0 })
				f.add("stale", clusterIP, endpointA)
				f.add("stale too", "10.96.0.11:53", endpointA)
				h.tell(endpointB)
				time.Sleep(200 * time.Millisecond) // two failures
				h.Programmed(context.Background(), service.IPv4, viewOf("other", "10.96.0.11:53", endpointB))
				began := time.Now()
				events := h.settle()
				h.expectFlows("after the recovery")
				if len(events) < 6 {
					t.Fatalf("%d sweeps in %v, want 5 that fail and one that does not: %+v", len(events), time.Since(began), events)
				}
				for i, e := range events[:5] {
					if !errors.Is(e.Err, broken) || e.Failures != i+1 {
						t.Errorf("sweep %d: %+v", i+1, e)
					}
				}
				if last := events[len(events)-1]; last.Err != nil || last.Failures != 0 {
					t.Errorf("last sweep: %+v", last)
				}
			})
		})
	}
}

// TestCleaner_OtherFamilyGoesOn: while the kernel does not answer for one family, the cleaner sweeps the other family,
// and actors do not wait.
func TestCleaner_OtherFamilyGoesOn(t *testing.T) {
	inHouse(t, func(h *house) {
		hang := make(chan struct{})
		h.kernels[service.IPv4].listing = func(int) error { <-hang; return nil }
		h.kernels[service.IPv4].add("stale", clusterIP, endpointA)
		h.kernels[service.IPv6].add("stale", "[fd96::10]:53", "[fd10::1]:53")
		h.tell(endpointB)
		time.Sleep(time.Second)
		h.Programmed(context.Background(), service.IPv6, viewOf("dns", "[fd96::10]:53", "[fd10::2]:53"))
		for range 1000 {
			h.tell(endpointB)
		}
		h.settle()
		if left := h.kernels[service.IPv6].names(); len(left) > 0 {
			t.Errorf("IPv6 has waited: %v", left)
		}
		close(hang)
		h.settle()
		h.expectFlows("when the kernel answers again")
	})
}

// TestCleaner_ChangeDuringSweep: a change during a sweep causes another sweep, because the first one may have read the
// flows before the change.
func TestCleaner_ChangeDuringSweep(t *testing.T) {
	inHouse(t, func(h *house) {
		f := h.kernels[service.IPv4]
		f.listing = func(n int) error {
			if n == 1 {
				h.tell(endpointB)
			}
			return nil
		}
		h.tell(endpointA)
		time.Sleep(gatherDefault + time.Millisecond)
		f.add("after the first sweep", clusterIP, endpointA)
		if events := h.settle(); len(events) != 2 {
			t.Errorf("%d sweeps: %+v", len(events), events)
		}
		h.expectFlows("after the second sweep")
	})
}

// TestCleaner_ServicesWithoutUDPCostNoSweep: changes of Services without UDP cause no sweep.
func TestCleaner_ServicesWithoutUDPCostNoSweep(t *testing.T) {
	inHouse(t, func(h *house) {
		view := viewOf("web", clusterIP, endpointA)
		view.Ports[service.IPv4][0].Protocol = service.TCP
		h.Programmed(context.Background(), service.IPv4, view)
		h.Programmed(context.Background(), service.IPv6, view)
		h.Programmed(context.Background(), service.IPv4, service.View{Key: view.Key})
		if events := h.settle(); len(events) > 0 || h.kernels[service.IPv4].listings > 0 {
			t.Errorf("swept: %+v", events)
		}
	})
}

// TestCleaner_StopIsNoFailure: a sweep whose context ends is not reported as a failure, and the cleaner discards later
// views.
func TestCleaner_StopIsNoFailure(t *testing.T) {
	inHouse(t, func(h *house) {
		f := h.kernels[service.IPv4]
		f.listing = func(int) error { h.cancel(); return nil }
		f.add("stale", clusterIP, endpointA)
		h.tell(endpointB)
		if events := h.settle(); len(events) > 0 {
			t.Errorf("said: %+v", events)
		}
		h.tell(endpointA)
		h.Programmed(context.Background(), service.IPv4, viewOf("late", clusterIP, endpointA))
		if held := h.families[service.IPv4].table.services; held[named("late")] != nil {
			t.Errorf("stored: %v", held)
		}
	})
}

// TestCleaner_SweepsTakeQuarterOfTime: sweeping takes a quarter of the time, however fast changes arrive.
func TestCleaner_SweepsTakeQuarterOfTime(t *testing.T) {
	inHouse(t, func(h *house) {
		const took = 100 * time.Millisecond
		h.kernels[service.IPv4].listing = func(int) error { time.Sleep(took); return nil }
		began := time.Now()
		for time.Since(began) < 10*time.Second {
			h.tell(endpointB)
			time.Sleep(5 * time.Millisecond)
		}
		spent := time.Duration(h.kernels[service.IPv4].listings) * took
		if spent > 3*time.Second || spent < 2*time.Second {
			t.Errorf("%v of 10 s were spent sweeping", spent)
		}
	})
}

// TestCleaner_Repaired: after a repair, the sweep judges all flows of the family, even if the message is overtaken by a
// picture of the node.
func TestCleaner_Repaired(t *testing.T) {
	inHouse(t, func(h *house) {
		h.tell(endpointA)
		h.settle()
		h.kernels[service.IPv4].add("astray", clusterIP, clusterIP)
		h.kernels[service.IPv4].add("current", clusterIP, endpointA)
		h.kernels[service.IPv4].add("foreign", "203.0.113.9:53", "203.0.113.9:53")
		h.settle()
		h.expectFlows("before the repair", "astray", "current", "foreign")
		h.Repaired(service.IPv6)
		h.settle()
		h.expectFlows("after a repair in the other family", "astray", "current", "foreign")
		h.Repaired(service.IPv4)
		h.Programmed(context.Background(), service.IPv4, service.View{Key: service.Node})
		events := h.settle()
		h.expectFlows("after the repair", "current", "foreign")
		if len(events) != 1+len(doubtPauses) || events[0].Deleted != 1 {
			t.Errorf("%+v, want a sweep that deletes a flow, and %d more", events, len(doubtPauses))
		}
	})
}

// TestCleaner_FlowsAfterRepair: a later sweep deletes a flow that begins after the first sweep that follows a repair.
func TestCleaner_FlowsAfterRepair(t *testing.T) {
	inHouse(t, func(h *house) {
		h.tell(endpointA)
		h.settle()
		for _, late := range []time.Duration{30 * time.Millisecond, 150 * time.Millisecond, 900 * time.Millisecond} {
			h.Repaired(service.IPv4)
			time.Sleep(late)
			synctest.Wait()
			h.kernels[service.IPv4].add("astray", clusterIP, clusterIP)
			h.settle()
			h.expectFlows(fmt.Sprintf("%v after a repair", late))
		}
	})
}

// TestCleaner_FirstSweepKeepsServedFlows: the first sweep of a process keeps each flow to a serving endpoint, answered
// or not, for each kind of frontend. It deletes the flow to an endpoint that was removed while no process ran, because
// the client would stay with this endpoint.
func TestCleaner_FirstSweepKeepsServedFlows(t *testing.T) {
	places := service.PerFamily[struct{ clusterIP, external, node, serving, left string }]{
		{clusterIP, external, "192.0.2.1:30053", endpointA, endpointB},
		{"[fd96::10]:53", "[2001:db8:7::7]:53", "[2001:db8:1::1]:30053", "[fd10::2]:5353", "[fd10::3]:5353"},
	}
	for name, starts := range map[string]func(*house, service.Family, service.View){
		"applied": func(h *house, f service.Family, v service.View) {
			h.Programmed(context.Background(), f, v)
		},
		"submitted, then applied": func(h *house, f service.Family, v service.View) {
			h.Submitted(context.Background(), f, v)
			h.Programmed(context.Background(), f, v)
		},
		"with a repair": func(h *house, f service.Family, v service.View) {
			h.Programmed(context.Background(), f, v)
			h.Repaired(f)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inHouse(t, func(h *house) {
				for family, at := range places {
					f := h.kernels[family]
					f.host = []netip.Addr{netip.MustParseAddrPort(at.node).Addr()}
					for _, to := range []string{at.clusterIP, at.external, at.node} {
						for _, replied := range []bool{false, true} {
							for _, protocol := range []service.Protocol{service.TCP, service.UDP} {
								one := *flowOf(fmt.Sprint(protocol, to, replied), protocol.Number(), to, at.serving)
								one.From, one.Replied = netip.MustParseAddrPort("192.0.2.9:4000"), replied
								f.held[string(one.Description)] = one
							}
						}
					}
					f.add("left", at.clusterIP, at.left)
					view := viewOf("dns", at.clusterIP, at.serving)
					udp := &view.Ports[family][0]
					udp.NodePort, udp.ExternalIPs = 30053, []netip.Addr{netip.MustParseAddrPort(at.external).Addr()}
					tcp := *udp
					tcp.Protocol, tcp.Cluster, tcp.Serving = service.TCP, udp.Serving, nil
					view.Ports[family] = append(view.Ports[family], tcp)
					before := f.names()
					starts(h, service.Family(family), view)
					h.settle()
					if left := f.names(); !slices.Equal(left, slices.DeleteFunc(before, func(n string) bool { return n == "left" })) {
						t.Errorf("%v: of %v there are left %v", service.Family(family), before, left)
					}
				}
			})
		})
	}
}

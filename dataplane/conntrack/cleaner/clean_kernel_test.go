// SPDX-License-Identifier: Apache-2.0

package cleaner_test

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/netnstest"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// stale is a flow before and after a change. A flow whose before and after are equal is kept, the others are deleted.
type stale struct {
	name          string
	from          *netns.Namespace
	to            netip.AddrPort
	before, after string
}

// from returns a flow of the outside client.
func (w *world) from(name string, to netip.Addr, port uint16, before, after string) stale {
	return stale{name, w.client, netip.AddrPortFrom(to, port), before, after}
}

// TestKernelCleaner_DeletesStaleFlows: after each kind of change of a Service, its clients, which keep their ports, are
// answered as before until the cleanup, and according to the new rules after it.
func TestKernelCleaner_DeletesStaleFlows(t *testing.T) {
	for i, c := range []struct {
		name string
		// flows are those that begin once the Service has endpoint a, and may prepare the node for them.
		flows func(w *world) []stale
		to    func(w *world) service.View
		// back is set if the Service then has endpoint b.
		back bool
	}{
		{"an endpoint is replaced", func(w *world) []stale {
			return []stale{
				w.from("ClusterIP", w.clusterIP, servicePort, "a", "b"),
				w.from("ClusterIP, another client", w.clusterIP, servicePort, "a", "b"),
				w.from("external IP", w.external, servicePort, "a", "b"),
				w.from("node port", w.plan.node.Addr(), nodePort, "a", "b"),
				{"ClusterIP from the host", w.node, netip.AddrPortFrom(w.clusterIP, servicePort), "a", "b"},
				{"node port from the host", w.node, netip.AddrPortFrom(w.nodeInside.Addr(), nodePort), "a", "b"},
			}
		}, func(w *world) service.View { return w.view(w.b) }, false},
		// kube-proxy deletes nothing at zero, and the client still reaches the pod that left.
		{"scaled to zero", func(w *world) []stale {
			return []stale{
				w.from("ClusterIP", w.clusterIP, servicePort, "a", refused),
				w.from("node port", w.plan.node.Addr(), nodePort, "a", refused),
			}
		}, func(w *world) service.View { return w.view() }, true},
		// A ClusterIP without a Service is dropped.
		{"the Service is deleted", func(w *world) []stale {
			return []stale{
				w.from("ClusterIP", w.clusterIP, servicePort, "a", silence),
				w.from("node port", w.plan.node.Addr(), nodePort, "a", refused),
			}
		}, func(*world) service.View { return gone() }, false},
		{"an address of the Service is removed", func(w *world) []stale {
			return []stale{
				w.from("ClusterIP", w.clusterIP, servicePort, "a", "a"),
				w.from("external IP", w.external, servicePort, "a", silence),
			}
		}, func(w *world) service.View {
			view := w.view(w.a)
			view.Ports[w.family][0].ExternalIPs = nil
			return view
		}, false},
		{"a flow through the node has the number of a node port", func(w *world) []stale {
			w.backend(w.pods, "stranger", netip.AddrPortFrom(w.stranger.Addr(), nodePort))
			return []stale{
				w.from("node port", w.plan.node.Addr(), nodePort, "a", "b"),
				w.from("another host", w.stranger.Addr(), nodePort, "stranger", "stranger"),
			}
		}, func(w *world) service.View { return w.view(w.b) }, false},
		{"the node's own flow has the number of a node port on another address", func(w *world) []stale {
			w.facts.NodePorts[w.family] = service.NodePortAddresses{Addresses: []netip.Addr{w.plan.node.Addr()}}
			w.want(service.Node, w.renderer.Node(&w.facts))
			w.commit()
			w.backend(w.node, "host", netip.AddrPortFrom(w.nodeInside.Addr(), nodePort))
			return []stale{
				w.from("node port", w.plan.node.Addr(), nodePort, "a", "b"),
				w.from("the host's own", w.nodeInside.Addr(), nodePort, "host", "host"),
			}
		}, func(w *world) service.View { return w.view(w.b) }, false},
		{"another Service has the same endpoint", func(w *world) []stale {
			other := w.view(w.a)
			other.Key.Name = "other"
			port := &other.Ports[w.family][0]
			port.ClusterIP, port.ExternalIPs, port.NodePort = port.ClusterIP.Next(), nil, 0
			w.serve(other)
			return []stale{
				w.from("the Service", w.clusterIP, servicePort, "a", "b"),
				w.from("the other Service", port.ClusterIP, servicePort, "a", "a"),
			}
		}, func(w *world) service.View { return w.view(w.b) }, false},
		// Each sweep lists the addresses at its start.
		{"the node has a new address", func(w *world) []stale {
			fresh := w.external.Next()
			w.check(w.node.AddAddress("outside", netip.PrefixFrom(fresh, fresh.BitLen())))
			return []stale{w.from("node port", fresh, nodePort, "a", "b")}
		}, func(w *world) service.View { return w.view(w.b) }, false},
	} {
		families := testenv.Variants(service.IPv4, service.IPv6)
		if i == 0 {
			families = service.Families[:]
		}
		for _, family := range families {
			t.Run(c.name+"/"+family.String(), func(t *testing.T) {
				w := newWorld(t, family)
				w.serve(w.view(w.a))
				flows := c.flows(w)
				peers, deleted := make([]*peer, len(flows)), 0
				expect := func(when string, want func(stale) string) {
					for i, f := range flows {
						peers[i].expect(want(f), f.name+" "+when)
					}
				}
				before := func(f stale) string { return f.before }
				for i, f := range flows {
					peers[i] = w.open(f.from, netip.AddrPort{}, f.to)
					if f.before != f.after {
						deleted++
					}
				}
				expect("at first", before)
				w.write(c.to(w))
				expect("before the clean-up", before) // or else the rest proves nothing
				w.expectDeleted(w.tell(c.to(w)), deleted, c.name)
				expect("after the clean-up", func(f stale) string { return f.after })
				for i, f := range flows {
					if f.before == f.after {
						peers[i].expectPackets(3, f.name)
					}
				}
				if c.back {
					w.serve(w.view(w.b))
					expect("with an endpoint again", func(stale) string { return "b" })
				}
			})
		}
	}
}

// TestKernelCleaner_FirstEndpoint: a client that sent before the Service had an endpoint and rules reaches the first
// endpoint after the cleanup. The kernel remembers not to translate such a flow.
func TestKernelCleaner_FirstEndpoint(t *testing.T) {
	eachFamily(t, func(w *world) {
		p := w.dial(w.external, servicePort)
		p.expect(silence, "before the Service is there")
		w.write(w.view(w.a))
		p.expect(silence, "before the clean-up")
		w.expectDeleted(w.tell(w.view(w.a)), 1, "first endpoint")
		p.expect("a", "after the clean-up")
	})
}

// TestKernelCleaner_SurvivorsUntouched: when one endpoint is replaced, the flows to the other endpoint remain. The node
// masquerades the clients with a random port, so a new flow would show another port.
func TestKernelCleaner_SurvivorsUntouched(t *testing.T) {
	eachFamily(t, func(w *world) {
		w.serve(w.view(w.a, w.b))
		const clients = 24
		type state struct{ who, client string }
		before := map[*peer]state{}
		leaving := 0
		for range clients {
			p := w.dial(w.clusterIP, servicePort)
			who, client := p.ask(patience)
			before[p] = state{who, client}
			if who == "b" {
				leaving++
			}
		}
		if leaving == 0 || leaving == clients {
			t.Fatalf("%d of %d clients are led to b: the test would prove nothing", leaving, clients)
		}
		w.expectDeleted(w.serve(w.view(w.a, w.c)), leaving, "b replaced by c")
		for p, was := range before {
			who, client := p.ask(patience)
			if was.who == "a" && (who != "a" || client != was.client) {
				t.Errorf("a client of a was cut off: it was %v, is %s as %s", was, who, client)
			}
			if was.who == "b" && who != "a" && who != "c" {
				t.Errorf("a client of b hears %s, want a or c", who)
			}
		}
	})
}

// TestKernelCleaner_TerminatingKeepsItsFlows: a terminating endpoint keeps its flows as long as it serves, and new
// clients reach another endpoint.
func TestKernelCleaner_TerminatingKeepsItsFlows(t *testing.T) {
	eachFamily(t, func(w *world) {
		w.serve(w.view(w.a))
		p := w.dial(w.clusterIP, servicePort)
		p.expect("a", "at first")
		draining := w.view(w.b)
		draining.Ports[w.family][0].Serving = w.view(w.a, w.b).Ports[w.family][0].Serving
		w.expectDeleted(w.serve(draining), 0, "a terminates")
		p.expect("a", "while it terminates")
		w.dial(w.clusterIP, servicePort).expect("b", "a new client")
		w.expectDeleted(w.serve(w.view(w.b)), 1, "a has gone")
		p.expect("b", "after it has gone")
	})
}

// TestKernelCleaner_RestartBeforeCleanUp: if the process ends between the write and the cleanup, the next process
// deletes the stale flow. It receives only the view that is applied.
func TestKernelCleaner_RestartBeforeCleanUp(t *testing.T) {
	eachFamily(t, func(w *world) {
		w.serve(w.view(w.a))
		stale := w.dial(w.clusterIP, servicePort)
		stale.expect("a", "at first")
		w.stop()
		w.write(w.view(w.b))
		current := w.dial(w.clusterIP, servicePort)
		current.expect("b", "a new client")
		stale.expect("a", "before the clean-up")
		w.start()
		w.expectDeleted(w.tell(w.view(w.b)), 1, "after the restart")
		stale.expect("b", "after the restart")
		current.expect("b", "after the restart")
		current.expectPackets(2, "the current flow")
	})
}

// TestKernelCleaner_ManyServicesAtOnce: one sweep deletes the stale flows of more frontends than it lists one by one.
func TestKernelCleaner_ManyServicesAtOnce(t *testing.T) {
	eachFamily(t, func(w *world) {
		const count = 8
		var views []service.View
		var peers []*peer
		address := w.clusterIP
		for i := range count {
			view := w.view(w.a)
			view.Key.Name = string(rune('a' + i))
			port := &view.Ports[w.family][0]
			port.ClusterIP, port.ExternalIPs, port.NodePort, port.Port = address, nil, 0, uint16(servicePort+i)
			views = append(views, view)
			w.write(view)
			p := w.dial(address, port.Port)
			p.expect("a", "at first")
			peers = append(peers, p)
			address = address.Next()
		}
		b := w.view(w.b).Ports[w.family][0].Cluster
		w.stop()
		w.gather = 200 * time.Millisecond // all changes arrive before the sweep
		w.start()
		for _, view := range views[1:] {
			view.Ports[w.family][0].Cluster, view.Ports[w.family][0].Serving = b, b
			w.write(view)
		}
		for _, view := range views[1:] {
			w.cleaner.Programmed(context.Background(), w.family, view)
		}
		s := w.tell(views[0])
		if s.Deleted != count-1 || len(s.Services) != count-1 {
			t.Errorf("%+v, want %d flows deleted, one for each Service that has changed", s, count-1)
		}
		for i, p := range peers {
			want := "b"
			if i == 0 {
				want = "a"
			}
			p.expect(want, "after the clean-up")
		}
	})
}

// TestKernelCleaner_UnderTraffic: while all clients send and endpoints change faster than sweeps follow, each client
// reaches the remaining endpoint in the end.
func TestKernelCleaner_UnderTraffic(t *testing.T) {
	eachFamily(t, func(w *world) {
		w.serve(w.view(w.a))
		var peers []*peer
		for range 50 {
			peers = append(peers, w.dial(w.clusterIP, servicePort))
		}
		sending := make(chan struct{})
		var senders sync.WaitGroup
		for _, p := range peers {
			senders.Go(func() {
				for {
					select {
					case <-sending:
						return
					case <-time.After(time.Millisecond):
						_ = p.Send() // refused while nothing serves
					}
				}
			})
		}
		views := []service.View{w.view(w.a), w.view(w.b), w.view(), w.view(w.b, w.c), w.view(w.a, w.b)}
		for i := range 40 {
			w.write(views[i%len(views)])
			w.cleaner.Programmed(context.Background(), w.family, views[i%len(views)])
			time.Sleep(time.Duration(i%7) * 3 * time.Millisecond)
		}
		w.write(w.view(w.c))
		w.cleaner.Programmed(context.Background(), w.family, w.view(w.c))
		time.Sleep(100 * time.Millisecond)
		close(sending)
		senders.Wait()
		for began := time.Now(); ; {
			led := slices.IndexFunc(peers, func(p *peer) bool { who, _ := p.ask(patience); return who != "c" })
			if led < 0 {
				break
			}
			if time.Since(began) > patience {
				peers[led].expect("c", "in the end")
				break
			}
		}
		for _, s := range w.taken() {
			w.check(s.Err)
		}
	})
}

// TestKernelCleaner_FirstSweepLosesNoAnswer: while clients use all frontends, processes start one after the other, and
// the sweeps of each delete no flow whose answer is on its way from a slow server.
func TestKernelCleaner_FirstSweepLosesNoAnswer(t *testing.T) {
	eachFamily(t, func(w *world) {
		view := w.view(w.a, w.b)
		w.serve(view)
		w.network.Think(30 * time.Millisecond)
		var targets []netnstest.Target
		for _, at := range []netip.AddrPort{
			netip.AddrPortFrom(w.clusterIP, servicePort), netip.AddrPortFrom(w.external, servicePort), netip.AddrPortFrom(w.plan.node.Addr(), nodePort),
		} {
			targets = append(targets, netnstest.Target{Network: "udp", Addr: at})
		}
		var mu sync.Mutex
		answered := 0
		load, err := netnstest.StartLoad(w.Context(), netnstest.LoadConfig{
			Client: w.client, Targets: targets, Pause: 5 * time.Millisecond, Patience: patience,
			Note: func(e netnstest.Exchange) {
				mu.Lock()
				defer mu.Unlock()
				if answered++; e.Err != nil {
					t.Errorf("%v: %v", targets[e.Target], e.Err)
				}
			},
		})
		w.check(err)
		for range 3 {
			w.stop()
			w.start()
			w.cleaner.Submitted(context.Background(), w.family, view)
			w.cleaner.Programmed(context.Background(), w.family, view)
			w.cleaner.Repaired(w.family)
			w.expectDeleted(w.awaitSwept(), 0, "after the start")
			time.Sleep(300 * time.Millisecond) // the first of the sweeps that follow
		}
		load.Stop()
		for _, s := range w.taken() {
			w.expectDeleted(s, 0, "soon after the start")
		}
		t.Logf("%d exchanges", answered)
	})
}

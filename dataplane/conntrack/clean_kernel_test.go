package conntrack_test

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/service"
)

// TestKernelEndpointReplaced: a client that keeps its port moves to the new endpoint,
// whichever frontend it uses and wherever it runs.
func TestKernelEndpointReplaced(t *testing.T) {
	eachFamily(t, func(w *world) {
		w.serve(w.view(w.a))
		peers := map[string]*peer{
			"ClusterIP":                 w.dial(w.clusterIP, servicePort),
			"external IP":               w.dial(w.external, servicePort),
			"node port":                 w.dial(w.plan.node.Addr(), nodePort),
			"ClusterIP from the host":   w.dialFrom(w.node, w.clusterIP, servicePort),
			"node port from the host":   w.dialFrom(w.node, w.nodeInside.Addr(), nodePort),
			"ClusterIP, another client": w.dial(w.clusterIP, servicePort),
		}
		for name, p := range peers {
			p.expect("a", name+" at first")
		}
		w.write(w.view(w.b))
		for name, p := range peers {
			p.expect("a", name+" before the clean-up") // or else the rest proves nothing
		}
		w.expectDeleted(w.tell(w.view(w.b)), len(peers), "endpoint replaced")
		for name, p := range peers {
			p.expect("b", name+" after the clean-up")
		}
	})
}

// TestKernelSurvivorsAreUntouched: the node masquerades these clients with a random port, so
// that a new flow shows another one.
func TestKernelSurvivorsAreUntouched(t *testing.T) {
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

// TestKernelTerminatingEndpointKeepsItsFlows: new clients go elsewhere, and its own stay as
// long as it serves.
func TestKernelTerminatingEndpointKeepsItsFlows(t *testing.T) {
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

// TestKernelFirstEndpoint: a client sent before the Service had an endpoint and the node a
// rule for it, so that the kernel remembers not to translate.
func TestKernelFirstEndpoint(t *testing.T) {
	eachFamily(t, func(w *world) {
		p := w.dial(w.external, servicePort)
		p.expect(silence, "before the Service is there")
		w.write(w.view(w.a))
		p.expect(silence, "before the clean-up")
		w.expectDeleted(w.tell(w.view(w.a)), 1, "first endpoint")
		p.expect("a", "after the clean-up")
	})
}

// TestKernelScaledToZeroAndBack: with kube-proxy, which deletes nothing at zero, the client
// still reaches the pod that left.
func TestKernelScaledToZeroAndBack(t *testing.T) {
	eachFamily(t, func(w *world) {
		w.serve(w.view(w.a))
		p := w.dial(w.clusterIP, servicePort)
		external := w.dial(w.plan.node.Addr(), nodePort)
		p.expect("a", "at first")
		external.expect("a", "at first")
		w.write(w.view())
		p.expect("a", "before the clean-up")
		w.expectDeleted(w.tell(w.view()), 2, "scaled to zero")
		p.expect(refused, "at zero")
		external.expect(refused, "at zero")
		w.serve(w.view(w.b))
		p.expect("b", "back at one")
		external.expect("b", "back at one")
	})
}

func TestKernelServiceDeleted(t *testing.T) {
	eachFamily(t, func(w *world) {
		w.serve(w.view(w.a))
		p := w.dial(w.clusterIP, servicePort)
		external := w.dial(w.plan.node.Addr(), nodePort)
		p.expect("a", "at first")
		external.expect("a", "at first")
		w.write(gone())
		p.expect("a", "before the clean-up")
		w.expectDeleted(w.tell(gone()), 2, "Service deleted")
		p.expect(silence, "after the clean-up: a ClusterIP without a Service is dropped")
		external.expect(refused, "after the clean-up")
	})
}

// TestKernelFrontendRemoved: the Service stays, and one of its addresses goes.
func TestKernelFrontendRemoved(t *testing.T) {
	eachFamily(t, func(w *world) {
		w.serve(w.view(w.a))
		kept, lost := w.dial(w.clusterIP, servicePort), w.dial(w.external, servicePort)
		kept.expect("a", "at first")
		lost.expect("a", "at first")
		view := w.view(w.a)
		view.Ports[w.family][0].ExternalIPs = nil
		w.expectDeleted(w.serve(view), 1, "external IP removed")
		kept.expect("a", "by the ClusterIP")
		kept.expectPackets(2, "the flow of the ClusterIP")
		if who, _ := lost.ask(hush); who == "a" {
			t.Error("the external IP still leads to a")
		}
	})
}

// TestKernelForeignFlowsOnANodePortsNumber: a flow through this node to another host, on the
// number of a node port, is not ours.
func TestKernelForeignFlowsOnANodePortsNumber(t *testing.T) {
	eachFamily(t, func(w *world) {
		w.backend(w.pods, "stranger", netip.AddrPortFrom(w.stranger.Addr(), nodePort))
		w.serve(w.view(w.a))
		ours, foreign := w.dial(w.plan.node.Addr(), nodePort), w.dial(w.stranger.Addr(), nodePort)
		ours.expect("a", "the node port")
		foreign.expect("stranger", "the foreign flow")
		w.expectDeleted(w.serve(w.view(w.b)), 1, "endpoint replaced")
		ours.expect("b", "the node port")
		foreign.expect("stranger", "the foreign flow")
		foreign.expectPackets(2, "the foreign flow")
	})
}

// TestKernelNodePortsOnSomeAddresses: on the node's other addresses, the number of a
// node port belongs to a process that listens there.
func TestKernelNodePortsOnSomeAddresses(t *testing.T) {
	eachFamily(t, func(w *world) {
		w.facts.NodePorts[w.family] = service.NodePortAddresses{Addresses: []netip.Addr{w.plan.node.Addr()}}
		w.want(service.Node, w.renderer.Node(&w.facts))
		w.backend(w.node, "host", netip.AddrPortFrom(w.nodeInside.Addr(), nodePort))
		w.serve(w.view(w.a))
		ours, host := w.dial(w.plan.node.Addr(), nodePort), w.dial(w.nodeInside.Addr(), nodePort)
		ours.expect("a", "the node port")
		host.expect("host", "the host's own")
		w.expectDeleted(w.serve(w.view(w.b)), 1, "endpoint replaced")
		ours.expect("b", "the node port")
		host.expect("host", "the host's own")
		host.expectPackets(2, "the flow to the host's own")
	})
}

// TestKernelOtherServicesAreUntouched, those with the same endpoint included.
func TestKernelOtherServicesAreUntouched(t *testing.T) {
	eachFamily(t, func(w *world) {
		w.serve(w.view(w.a))
		other := w.view(w.a)
		other.Key.Name = "other"
		port := &other.Ports[w.family][0]
		port.ClusterIP, port.ExternalIPs, port.NodePort = port.ClusterIP.Next(), nil, 0
		w.serve(other)
		p, q := w.dial(w.clusterIP, servicePort), w.dial(port.ClusterIP, servicePort)
		p.expect("a", "the Service")
		q.expect("a", "the other Service")
		w.expectDeleted(w.serve(w.view(w.b)), 1, "endpoint replaced")
		p.expect("b", "the Service")
		q.expect("a", "the other Service")
		q.expectPackets(2, "the other Service's flow")
	})
}

// TestKernelRestartBetweenWriteAndCleanUp: the process ends when the rules are applied
// and the flows are not clean. The next one gets the views applied and nothing else.
func TestKernelRestartBetweenWriteAndCleanUp(t *testing.T) {
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

// TestKernelManyServicesAtOnce: more frontends than the sweep lists one by one.
func TestKernelManyServicesAtOnce(t *testing.T) {
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
		for _, view := range views[1:] {
			view.Ports[w.family][0].Cluster, view.Ports[w.family][0].Serving = b, b
			w.write(view)
			w.cleaner.Programmed(context.Background(), w.family, view)
		}
		s := w.tell(views[0])
		// Each Service has a frontend and an address that are new.
		if s.Frontends != 2*count || s.Deleted != count-1 || len(s.Services) != count-1 {
			t.Errorf("%+v, want twice %d frontends and %d flows deleted, one for each Service that has changed", s, count, count-1)
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

// TestKernelNodePortOnANewAddress: each sweep lists the addresses at its start, so that a
// later address of the node counts too.
func TestKernelNodePortOnANewAddress(t *testing.T) {
	eachFamily(t, func(w *world) {
		w.serve(w.view(w.a))
		fresh := w.external.Next()
		w.check(w.node.AddAddress("outside", netip.PrefixFrom(fresh, fresh.BitLen())))
		p := w.dial(fresh, nodePort)
		p.expect("a", "at first")
		w.expectDeleted(w.serve(w.view(w.b)), 1, "endpoint replaced")
		p.expect("b", "after the clean-up")
	})
}

// TestKernelUnderTraffic: endpoints change faster than sweeps follow, while all clients send.
// In the end each client reaches the remaining one.
func TestKernelUnderTraffic(t *testing.T) {
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

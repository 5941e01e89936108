// SPDX-License-Identifier: Apache-2.0

package cleaner_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane/conntrack/cleaner"
	iptkernel "github.com/sluice-proxy/sluice/dataplane/iptables/kernel"
	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/netnstest"
	"github.com/sluice-proxy/sluice/test/testenv"
)

var drainConnections = flag.Int("drain-connections", 500, "TCP connections of TestKernelDrain_Deadline")

// web is a TCP Service with ten endpoints.
var web = service.Key{Namespace: "ns1", Name: "web"}

const (
	webPort      = 80
	webNodePort  = 30080
	webEndpoints = 10
)

// webView returns the Service with the endpoints from a number on.
func (w *world) webView(first int, drain time.Duration) service.View {
	port := service.PortView{
		Name: "http", Protocol: service.TCP, Port: webPort, NodePort: webNodePort,
		ClusterIP: w.clusterIP, ExternalIPs: []netip.Addr{w.external}, HasAny: first < webEndpoints,
	}
	for i := first; i < webEndpoints; i++ {
		port.Cluster = append(port.Cluster, service.Endpoint{AddrPort: w.webEndpoint(i)})
	}
	view := service.View{Key: web, Drain: service.Drain{Limited: true, After: drain}}
	view.Ports[w.family] = []service.PortView{port}
	return view
}

func (w *world) webEndpoint(i int) netip.AddrPort {
	return netip.AddrPortFrom(w.a.Addr(), uint16(8000+i))
}

// serveWeb starts the endpoints and serves them.
func (w *world) serveWeb(drain time.Duration) {
	w.Helper()
	servers := exec.Command(os.Args[0])
	servers.Env = append(os.Environ(), serversVariable+"="+w.a.Addr().String())
	stop, err := servers.StdinPipe()
	w.check(err)
	ready, err := servers.StdoutPipe()
	w.check(err)
	w.check(netnstest.Start(w.pods, servers))
	w.Cleanup(func() { _ = stop.Close(); _ = servers.Wait() })
	_, err = ready.Read(make([]byte, 1))
	w.check(err)
	w.serve(w.webView(0, drain))
}

// serversVariable has the address of the endpoints in the process that serves them.
const serversVariable = "SLUICE_TEST_SERVERS"

// TestMain runs the tests, or serves the endpoints: one process may not have enough files for both ends of all
// connections.
func TestMain(m *testing.M) {
	host := os.Getenv(serversVariable)
	if host == "" {
		os.Exit(m.Run())
	}
	if err := serveUntilEnd(netip.MustParseAddr(host)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// serveUntilEnd serves the endpoints until its input ends.
func serveUntilEnd(host netip.Addr) error {
	n, err := netns.Current("pods")
	if err != nil {
		return err
	}
	for i := range webEndpoints {
		if _, err := netnstest.StartBackend(n, fmt.Sprint(i), netip.AddrPortFrom(host, uint16(8000+i))); err != nil {
			return err
		}
	}
	fmt.Println("ready")
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// connectWeb opens connections, some of them by the external IP and the node port, and returns them by endpoint.
func (w *world) connectWeb(n int) map[string][]*netnstest.Session {
	w.Helper()
	targets := []netip.AddrPort{
		netip.AddrPortFrom(w.clusterIP, webPort), netip.AddrPortFrom(w.external, webPort),
		netip.AddrPortFrom(w.plan.node.Addr(), webNodePort),
	}
	var mu sync.Mutex
	var running sync.WaitGroup
	all := map[string][]*netnstest.Session{}
	for worker := range 8 {
		running.Go(func() {
			for i := worker; i < n; i += 8 {
				s, err := netnstest.Connect(w.Context(), w.client, targets[i%len(targets)])
				if err != nil {
					w.Error(err)
					return
				}
				mu.Lock()
				all[s.Answer().Backend] = append(all[s.Answer().Backend], s)
				mu.Unlock()
			}
		})
	}
	running.Wait()
	w.Cleanup(func() {
		for _, sessions := range all {
			for _, s := range sessions {
				_ = s.Close() // some have been reset
			}
		}
	})
	if len(all) != webEndpoints {
		w.Fatalf("%d endpoints got connections, want %d", len(all), webEndpoints)
	}
	return all
}

// trackedWeb returns the entries of TCP connections that lead to an endpoint, or with a negative number to any other
// than endpoint 0.
func (w *world) trackedWeb(i int) (ids []uint32) {
	w.Helper()
	all, err := netnstest.Conntrack(w.node)
	w.check(err)
	for _, f := range all {
		to := int(f.Answerer.Port()) - 8000
		if f.Protocol == unix.IPPROTO_TCP && f.Answerer.Addr() == w.a.Addr() && (to == i || i < 0 && to != 0) {
			ids = append(ids, f.ID)
		}
	}
	slices.Sort(ids)
	return ids
}

// echo sends a line over each connection. It returns how many got ECONNRESET, and the others.
func (w *world) echo(sessions []*netnstest.Session) (reset int, alive []*netnstest.Session) {
	w.Helper()
	for _, s := range sessions {
		err := s.Echo(w.Context(), "hello")
		switch {
		case errors.Is(err, unix.ECONNRESET):
			reset++
			continue
		case err != nil:
			w.Errorf("connection from %v: %v", s.Local(), err)
		}
		alive = append(alive, s)
	}
	return reset, alive
}

// change writes a view and passes it to the cleaner, without waiting for a sweep.
func (w *world) change(view service.View) {
	w.Helper()
	w.write(view)
	w.cleaner.Programmed(context.Background(), w.family, view)
}

// awaitCut waits for the sweep that cuts connections, and fails if it is not the only one.
func (w *world) awaitCut() (cleaner.Swept, cleaner.Cut) {
	w.Helper()
	s := w.awaitSwept()
	if len(s.Cut) != 1 {
		w.Fatalf("swept %+v, want one cut", s)
	}
	return s, s.Cut[0]
}

// TestKernelDrain_Deadline: at the deadline after the removal of an endpoint, the kernel has none of its connections
// any more. They end with a reset when their clients send, and connections to the other nine endpoints continue.
func TestKernelDrain_Deadline(t *testing.T) {
	const deadline = 4 * time.Second
	eachRules(t, func(w *world) {
		w.serveWeb(deadline)
		sessions := w.connectWeb(*drainConnections)
		gone, others := w.trackedWeb(0), w.trackedWeb(-1)
		if len(gone) != len(sessions["0"]) || len(gone)+len(others) != *drainConnections {
			w.Fatalf("the kernel has %d and %d connections, want %d in all", len(gone), len(others), *drainConnections)
		}
		removed := time.Now()
		w.change(w.webView(1, deadline))
		early, alive := w.echo(sessions["0"][:10])
		if early > 0 && time.Since(removed) < deadline {
			w.Errorf("%d of 10 connections were reset before the deadline", early)
		}
		swept, cut := w.awaitCut()
		after := time.Since(removed)
		if after < deadline || cut.Service != web || cut.Connections != len(gone) || swept.Deleted != len(gone) ||
			!slices.Equal(cut.Endpoints, []netip.AddrPort{w.webEndpoint(0)}) || cut.Deadline != deadline || cut.Crowded != 0 {
			w.Errorf("after %v: %+v, want %d connections cut", after, swept, len(gone))
		}
		if left := w.trackedWeb(0); len(left) > 0 {
			w.Errorf("%d connections to the endpoint are left", len(left))
		}
		if reset, _ := w.echo(append(alive, sessions["0"][10:]...)); early+reset != len(gone) {
			w.Errorf("%d of %d connections were reset", early+reset, len(gone))
		}
		delete(sessions, "0")
		for name, all := range sessions {
			if reset, _ := w.echo(all); reset > 0 {
				w.Errorf("%d connections to endpoint %s were reset", reset, name)
			}
		}
		left := w.trackedWeb(-1)
		for _, id := range others {
			if _, found := slices.BinarySearch(left, id); !found {
				w.Errorf("entry %d of another endpoint is gone", id)
			}
		}
		w.Logf("%d connections: %d cut %v after the removal, the sweep saw %d flows and took %v",
			*drainConnections, cut.Connections, after.Round(time.Millisecond), swept.Flows, swept.Took)
	})
}

// eachRules runs a test with the rules of nftables mode, and in make test-all in each family with those of both
// variants of iptables mode, too.
func eachRules(t *testing.T, test func(*world)) {
	t.Run("nftables", func(t *testing.T) { eachFamily(t, test) })
	if !testenv.All() {
		return
	}
	for _, variant := range []iptkernel.Variant{iptkernel.NFT, iptkernel.Legacy} {
		for _, family := range service.Families {
			t.Run("iptables-"+string(variant)+"/"+family.String(), func(t *testing.T) { test(newIPTablesWorld(t, family, variant)) })
		}
	}
}

// TestKernelDrain_Datagrams: UDP flows to an endpoint of weight 0 continue until the deadline and are then cut.
func TestKernelDrain_Datagrams(t *testing.T) {
	eachFamily(t, func(w *world) {
		const deadline = time.Second
		both, drained := w.view(w.a, w.b), w.view(w.a, w.b)
		drained.Ports[w.family][0].Cluster = w.view(w.b).Ports[w.family][0].Cluster
		for _, v := range []*service.View{&both, &drained} {
			v.Drain = service.Drain{Limited: true, After: deadline}
		}
		w.serve(both)
		peers := map[*peer]string{}
		toA := 0
		for range 16 {
			p := w.dial(w.clusterIP, servicePort)
			if peers[p], _ = p.ask(patience); peers[p] == "a" {
				toA++
			}
		}
		began := time.Now()
		w.change(drained)
		for p, who := range peers {
			if got, _ := p.ask(patience); got != who && time.Since(began) < deadline {
				p.Errorf("before the deadline: %s answers, want %s", got, who)
			}
		}
		var cuts []cleaner.Cut
		testenv.Eventually(w, "flows are cut", func() bool {
			for _, s := range w.taken() {
				if cuts = append(cuts, s.Cut...); s.Deleted > 0 && len(s.Cut) == 0 {
					t.Errorf("before the deadline: swept %+v, want nothing deleted", s)
				}
			}
			return len(cuts) > 0
		})
		if toA == 0 || len(cuts) != 1 || cuts[0].Connections != toA {
			t.Errorf("%+v, want %d flows cut", cuts, toA)
		}
		for p := range peers {
			p.expect("b", "after the deadline")
		}
	})
}

// SPDX-License-Identifier: Apache-2.0

package cleaner_test

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	iptkernel "github.com/sluice-proxy/sluice/dataplane/iptables/kernel"
	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/netnstest"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// shortJourney is how long an answer of the server outside is on its way: longer than a repair and its first sweeps on
// an idle machine.
const shortJourney = 120 * time.Millisecond

// outside makes the host behind the default route answer all packets to the Service's addresses, from these addresses.
func (w *world) outside() {
	w.Helper()
	for _, a := range []netip.Addr{w.clusterIP, w.external} {
		w.check(w.pods.AddAddress("lo", netip.PrefixFrom(a, a.BitLen())))
		w.outsiders = append(w.outsiders, netnstest.Serve(w, w.pods, "outside", netip.AddrPortFrom(a, servicePort)))
	}
	w.travel(shortJourney)
}

// travel sets how long answers of the server outside are on their way.
func (w *world) travel(d time.Duration) {
	w.journey = d
	for _, b := range w.outsiders {
		b.Think(d)
	}
}

// bothProtocols returns the view of the Service with its port over TCP as well.
func (w *world) bothProtocols(endpoints ...netip.Prefix) service.View {
	view := w.view(endpoints...)
	tcp := view.Ports[w.family][0]
	tcp.Name, tcp.Protocol = "dns-tcp", service.TCP
	view.Ports[w.family] = append(view.Ports[w.family], tcp)
	return view
}

// streams begins clients of all kinds of frontends, from a host outside and from the node itself. TCP clients connect
// to the ClusterIP alone: another host may have the external IP.
func (w *world) streams() (all []*netnstest.Stream) {
	w.Helper()
	for _, a := range []netip.Addr{w.clusterIP, w.external} {
		for range 4 {
			s, err := netnstest.OpenStream(w.Context(), w.client, netip.AddrPort{}, netip.AddrPortFrom(a, servicePort))
			w.check(err)
			w.Cleanup(func() { w.check(s.Close()) })
			all = append(all, s)
		}
	}
	for _, from := range []*netns.Namespace{w.client, w.node} {
		s := netnstest.OpenTCPStream(w.Context(), from, netip.AddrPortFrom(w.clusterIP, servicePort))
		w.Cleanup(func() { w.check(s.Close()) })
		all = append(all, s)
	}
	return all
}

// session begins a TCP connection that a backend answers.
func (w *world) session(from *netns.Namespace, to netip.Addr, who string) *netnstest.Session {
	w.Helper()
	s, err := netnstest.Connect(w.Context(), from, netip.AddrPortFrom(to, servicePort))
	w.check(err)
	w.Cleanup(func() { _ = s.Close() }) // perhaps reset
	if got := s.Answer().Backend; got != who {
		w.Fatalf("%v: %s answers, want %s", to, got, who)
	}
	return s
}

// answered waits until all clients hear of a backend, and of nobody else for twice the journey.
func (w *world) answered(who string, by []*netnstest.Stream, when string) (after time.Duration) {
	w.Helper()
	began := time.Now()
	for _, s := range by {
		testenv.Eventually(w, fmt.Sprintf("%s: %s is answered by %s alone", when, s, who), func() bool {
			got, since, last := s.Answers()
			after = max(after, since.Sub(began))
			return got == who && last.Sub(since) > 2*w.journey && time.Since(last) < w.journey
		})
	}
	return after
}

// reversed returns the number of flows that began with an answer of the server outside.
func (w *world) reversed() (n int) {
	w.Helper()
	all, err := netnstest.Conntrack(w.node)
	w.check(err)
	for _, e := range all {
		if from := e.Source; from == netip.AddrPortFrom(w.clusterIP, servicePort) || from == netip.AddrPortFrom(w.external, servicePort) {
			n++
		}
	}
	return n
}

// translating runs a test in all modes that translate with conntrack.
func translating(t *testing.T, test func(*world)) {
	eachFamily(t, test)
	for _, variant := range testenv.Variants(iptkernel.NFT, iptkernel.Legacy) {
		for _, family := range testenv.Variants(service.IPv4, service.IPv6) {
			t.Run("iptables-"+string(variant)+"/"+family.String(), func(t *testing.T) { test(newIPTablesWorld(t, family, variant)) })
		}
	}
}

// TestKernelCleaner_AnswersArriveAfterSweep: clients reach the endpoint although the last answers of another host
// arrive after the sweep. These answers, to packets sent while rules were missing, begin flows in the other direction,
// which take all later packets of the clients.
func TestKernelCleaner_AnswersArriveAfterSweep(t *testing.T) {
	translating(t, func(w *world) {
		w.outside()
		w.nft(others)
		w.serve(w.bothProtocols(w.a))
		for met, tries := 0, 0; met < 2; tries++ {
			w.flush()
			clients := w.streams()
			w.answered("outside", clients, "without rules")
			w.repair()
			w.repaired()
			if late := w.begunOutside(); late {
				met++
			} else if w.travel(2 * w.journey); tries == 6 {
				w.Fatalf("no answer arrived after a sweep; the last ones were on their way for %v", w.journey/2)
			}
			t.Logf("right %v after the repair", w.answered("a", clients, "after the repair").Round(time.Millisecond))
		}
	})
}

// begunOutside reports whether an answer from outside, all of which have arrived when it returns, began a flow.
func (w *world) begunOutside() bool {
	for end := time.Now().Add(2 * w.journey); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if w.reversed() > 0 {
			return true
		}
	}
	return false
}

// TestKernelCleaner_AnswersWithoutTracking: clients reach the endpoint after a repair although no rule made the kernel
// track connections before. The first packet that it tracks is then an answer.
func TestKernelCleaner_AnswersWithoutTracking(t *testing.T) {
	eachFamily(t, func(w *world) {
		w.outside()
		w.serve(w.bothProtocols(w.a))
		clients := w.streams()
		w.answered("a", clients, "before the flush")
		w.nft("flush ruleset")
		w.answered("outside", clients, "without rules")
		w.repair()
		w.repaired()
		w.answered("a", clients, "after the repair")
	})
}

// TestKernelCleaner_ServiceAddedUnderTraffic: clients that another host answered reach the endpoint after a Service is
// added at this address.
func TestKernelCleaner_ServiceAddedUnderTraffic(t *testing.T) {
	translating(t, func(w *world) {
		w.outside()
		w.facts.ServiceCIDRs[w.family] = nil // so that nobody refuses what comes before the Service
		w.want(service.Node, w.renderer.Node(&w.facts))
		w.commit()
		w.nft(others)
		w.travel(time.Second)
		for tries := 0; ; tries++ {
			clients := w.streams()
			w.answered("outside", clients, "before the Service")
			w.serve(w.bothProtocols(w.a))
			late := w.begunOutside()
			t.Logf("right %v after the Service was added", w.answered("a", clients, "with the Service").Round(time.Millisecond))
			if late {
				return
			}
			if tries == 3 {
				w.Fatalf("no answer arrived after a sweep; the last ones were on their way for %v", w.journey)
			}
			w.serve(gone()) // on a busy machine, the sweep came after all answers
			w.travel(2 * w.journey)
		}
	})
}

// TestKernelCleaner_ForeignFromServicePorts: the cleaner keeps flows of a process on the node that sends from the
// number of a node port, or from an external IP that is an address of the node.
func TestKernelCleaner_ForeignFromServicePorts(t *testing.T) {
	eachFamily(t, func(w *world) {
		w.nft(others)
		view := w.view(w.a)
		port := &view.Ports[w.family][0]
		port.ExternalIPs = append(port.ExternalIPs, w.plan.node.Addr())
		w.backend(w.client, "server", netip.AddrPortFrom(w.plan.client.Addr(), servicePort))
		var own []*peer
		for _, number := range []uint16{nodePort, servicePort} {
			p := w.open(w.node, netip.AddrPortFrom(w.plan.node.Addr(), number), netip.AddrPortFrom(w.plan.client.Addr(), servicePort))
			p.expect("server", "before the Service")
			own = append(own, p)
		}
		w.expectDeleted(w.serve(view), 0, "the new Service")
		w.repaired()
		for _, p := range own {
			p.expect("server", "after the sweeps")
			p.expectPackets(2, "the flow from a port of the node")
		}
	})
}

// TestKernelCleaner_ConnectionsWithoutRules: of the TCP connections that began while rules were missing and that
// another host answered, the one to a ClusterIP ends. Connections to an external IP, to an address of the node and to
// pods continue.
func TestKernelCleaner_ConnectionsWithoutRules(t *testing.T) {
	translating(t, func(w *world) {
		w.outside()
		w.nft(others)
		w.serve(w.bothProtocols(w.a))
		toPod := w.session(w.client, w.clusterIP, "a")
		w.flush()
		astray := w.session(w.client, w.clusterIP, "outside")
		elsewhere := w.session(w.client, w.external, "outside")
		w.backend(w.node, "host", netip.AddrPortFrom(w.plan.node.Addr(), servicePort))
		host := w.session(w.client, w.plan.node.Addr(), "host")
		local := w.session(w.node, w.plan.node.Addr(), "host")
		w.repair()
		w.repaired()
		testenv.Eventually(t, "the connection to a stranger at a ClusterIP ends", func() bool { return astray.Echo(t.Context(), "?") != nil })
		for name, s := range map[string]*netnstest.Session{
			"to a pod": toPod, "to another host": elsewhere, "to the node": host, "from the node to itself": local,
		} {
			if err := s.Echo(t.Context(), "?"); err != nil {
				t.Errorf("the connection %s: %v", name, err)
			}
		}
	})
}

// TestKernelCleaner_ListenerOnClusterIP: the cleaner keeps connections to a process on the node that listens on the
// ClusterIP, as a DNS cache does.
func TestKernelCleaner_ListenerOnClusterIP(t *testing.T) {
	translating(t, func(w *world) {
		w.nft(others)
		at := netip.AddrPortFrom(w.clusterIP, servicePort)
		w.check(w.node.AddAddress("lo", netns.Single(at.Addr())))
		w.backend(w.node, "cache", at)
		cached := w.session(w.client, at.Addr(), "cache")
		w.serve(w.bothProtocols(w.a))
		w.repaired()
		if err := cached.Echo(t.Context(), "?"); err != nil {
			t.Errorf("the connection to the cache: %v", err)
		}
	})
}

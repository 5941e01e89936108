package conntrack_test

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	iptkernel "github.com/sluice-proxy/sluice/dataplane/iptables/kernel"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/netnstest"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// journey is how long an answer of the server outside is on its way: longer than the first sweeps after a repair.
const journey = 120 * time.Millisecond

// outside makes the host behind the default route answer all packets to the Service's addresses, from these addresses.
func (w *world) outside() {
	w.Helper()
	for _, a := range []netip.Addr{w.clusterIP, w.external} {
		w.check(w.pods.AddAddress("lo", netip.PrefixFrom(a, a.BitLen())))
		netnstest.Serve(w, w.pods, "outside", netip.AddrPortFrom(a, servicePort)).Think(journey)
	}
}

// streams begins clients of all kinds of frontends, from a host outside and from the node itself.
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
	return all
}

// answered waits until all clients hear of a backend, and of nobody else for twice the journey.
func (w *world) answered(who string, by []*netnstest.Stream, when string) (after time.Duration) {
	w.Helper()
	began := time.Now()
	for _, s := range by {
		testenv.Eventually(w, fmt.Sprintf("%s: %s is answered by %s alone", when, s, who), func() bool {
			got, since, last := s.Answers()
			after = max(after, since.Sub(began))
			return got == who && last.Sub(since) > 2*journey && time.Since(last) < journey
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

// TestKernelAnswersThatArriveAfterTheSweep: while rules were missing, somebody out there answered. The last answers arrive
// when the flows of these clients have been deleted, and begin flows in the other direction, to which everything that the
// clients send from then on belongs.
func TestKernelAnswersThatArriveAfterTheSweep(t *testing.T) {
	translating(t, func(w *world) {
		w.outside()
		w.nft(others)
		w.serve(w.view(w.a))
		for range 2 {
			w.flush()
			clients := w.streams()
			w.answered("outside", clients, "without rules")
			w.repair()
			w.repaired()
			testenv.Eventually(w, "an answer from outside begins a flow", func() bool { return w.reversed() > 0 })
			t.Logf("right %v after the repair", w.answered("a", clients, "after the repair").Round(time.Millisecond))
		}
	})
}

// TestKernelAnswersWithoutTracking: without any rule the kernel tracks nothing, so an answer that arrives after the repair is
// the first packet that it sees.
func TestKernelAnswersWithoutTracking(t *testing.T) {
	eachFamily(t, func(w *world) {
		w.outside()
		w.serve(w.view(w.a))
		clients := w.streams()
		w.answered("a", clients, "before the flush")
		w.nft("flush ruleset")
		w.answered("outside", clients, "without rules")
		w.repair()
		w.repaired()
		w.answered("a", clients, "after the repair")
	})
}

// TestKernelServiceAddedUnderTraffic: the same for a Service whose clients were there first.
func TestKernelServiceAddedUnderTraffic(t *testing.T) {
	translating(t, func(w *world) {
		w.outside()
		w.facts.ServiceCIDRs[w.family] = nil // so that nobody refuses what comes before the Service
		w.want(service.Node, w.renderer.Node(&w.facts))
		w.commit()
		w.nft(others)
		clients := w.streams()
		w.answered("outside", clients, "before the Service")
		w.serve(w.view(w.a))
		testenv.Eventually(w, "an answer from outside begins a flow", func() bool { return w.reversed() > 0 })
		t.Logf("right %v after the Service was added", w.answered("a", clients, "with the Service").Round(time.Millisecond))
	})
}

// TestKernelForeignFlowsFromPortsOfServices: a process on the node that sends from the number of a node port, or from an
// external IP that is an address of the node.
func TestKernelForeignFlowsFromPortsOfServices(t *testing.T) {
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

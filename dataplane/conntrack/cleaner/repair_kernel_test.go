// SPDX-License-Identifier: Apache-2.0

package cleaner_test

import (
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/dataplane/conntrack/cleaner"
	"github.com/sluice-proxy/sluice/test/netnstest"
)

// others are the rules of other programs. They make the kernel track connections; without any
// such rule it would forget those that it has.
const others = `table inet others {
	chain tracking { type filter hook prerouting priority 0; ct state new counter; }
	chain leaving { type nat hook postrouting priority 100; }
	chain arriving { type nat hook prerouting priority -100; }
	chain begun { type nat hook output priority -100; }
}
`

// nft runs nft as another program would.
func (w *world) nft(commands string) {
	w.Helper()
	w.run(commands, "nft", "-f", "-")
}

func (w *world) run(commands, program string, args ...string) {
	w.Helper()
	cmd := exec.Command(program, args...)
	said := &strings.Builder{}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(commands), said, said
	if err := netnstest.Run(w.node, cmd); err != nil {
		w.Fatalf("%s: %v: %s (Debian packages nftables and iptables)", program, err, said)
	}
}

// flush removes our rules, and for a moment those of others, as a script that loads a
// firewall does.
func (w *world) flush() {
	w.Helper()
	w.nft("flush ruleset\n" + others)
	if w.legacy != "" {
		w.run("*nat\nCOMMIT\n*filter\nCOMMIT\n*mangle\nCOMMIT\n", w.legacy)
	}
}

// repair writes what is missing.
func (w *world) repair() {
	w.Helper()
	objects, err := w.writer.Read(w.Context())
	w.check(err)
	if drift := w.ledger.Observe(objects); drift.Undone == nil {
		w.Fatalf("nothing was undone: %+v", drift)
	}
	w.commit()
}

// repaired reports a repair to the cleaner and waits for its sweep.
func (w *world) repaired() cleaner.Swept {
	w.Helper()
	w.cleaner.Repaired(w.family)
	return w.awaitSwept()
}

// dialAs makes a client with a port of its choice.
func (w *world) dialAs(port int, target netip.Addr, to uint16) *peer {
	w.Helper()
	local := netip.AddrPortFrom(w.plan.client.Addr(), uint16(port))
	return w.open(w.client, local, netip.AddrPortFrom(target, to))
}

// goesOn sends until a backend answers. The socket may first report an earlier error.
func (p *peer) goesOn(who, when string) {
	p.Helper()
	got := ""
	for began := time.Now(); got != who && time.Since(began) < patience; {
		got, _ = p.ask(hush)
	}
	if got != who {
		p.Errorf("%s: %s answers, want %s", when, got, who)
	}
}

func (p *peer) port() int { return int(p.Local().Port()) }

// TestKernelCleaner_FlowsBegunWithoutRules: after a repair, clients whose flows began without rules reach the endpoint,
// also one that reuses a port, and clients of a Service without endpoints are refused. Correct flows and those to
// addresses of no Service are not touched.
func TestKernelCleaner_FlowsBegunWithoutRules(t *testing.T) {
	eachFamily(t, func(w *world) {
		w.backend(w.node, "host", netip.AddrPortFrom(w.plan.node.Addr(), servicePort))
		w.backend(w.pods, "foreign", netip.AddrPortFrom(w.stranger.Addr(), servicePort))
		w.nft(others)
		w.serve(w.view(w.a))
		empty := w.view()
		empty.Key.Name = "empty"
		port := &empty.Ports[w.family][0]
		port.ClusterIP, port.ExternalIPs, port.NodePort = port.ClusterIP.Next(), nil, 0
		w.serve(empty)
		before := w.dial(w.clusterIP, servicePort)
		before.expect("a", "before the flush")

		w.flush()
		astray := map[string]*peer{
			"ClusterIP":               w.dial(w.clusterIP, servicePort),
			"external IP":             w.dial(w.external, servicePort),
			"node port":               w.dial(w.plan.node.Addr(), nodePort),
			"ClusterIP from the host": w.dialFrom(w.node, w.clusterIP, servicePort),
		}
		first, err := netnstest.OpenFlow(w.Context(), w.client, netip.AddrPort{}, netip.AddrPortFrom(w.clusterIP, servicePort))
		w.check(err)
		reused := &peer{w, first}
		toNobody := w.dial(port.ClusterIP, servicePort)
		foreign, host := w.dial(w.stranger.Addr(), servicePort), w.dial(w.plan.node.Addr(), servicePort)
		for name, p := range astray {
			if who, _ := p.ask(hush); who == "a" {
				t.Fatalf("%s without rules: a answers", name)
			}
		}
		reused.ask(hush)
		toNobody.ask(hush)
		foreign.expect("foreign", "without rules")
		host.expect("host", "without rules")
		w.check(reused.Close())

		w.repair()
		again := w.dialAs(reused.port(), w.clusterIP, servicePort)
		for name, p := range astray {
			if who, _ := p.ask(hush); who == "a" {
				t.Errorf("%s: a answers before the clean-up, so that the rest proves nothing", name)
			}
		}
		if who, _ := again.ask(hush); who == "a" {
			t.Error("a answers the client that reuses a port before the clean-up, so that the rest proves nothing")
		}
		swept := w.repaired()
		if swept.Services[empty.Key] != 1 || swept.Services[dns] != len(astray)+1 || swept.Deleted != len(astray)+2 {
			t.Errorf("rules written again: %+v, want %d flows deleted because of %v and 1 because of %v", swept, len(astray)+1, dns, empty.Key)
		}
		began := time.Now()
		for name, p := range astray {
			p.goesOn("a", name+" after the clean-up")
		}
		again.goesOn("a", "a client that reuses a port")
		t.Logf("%d clients answered %v after the clean-up", len(astray)+1, time.Since(began).Round(time.Millisecond))
		before.expect("a", "begun before the flush")
		for name, p := range map[string]*peer{"foreign": foreign, "host": host} {
			p.expect(name, "after the clean-up")
			p.expectPackets(2, "the flow to "+name)
		}
		toNobody.goesOn(refused, "a client of a Service without endpoints")
	})
}

// TestKernelCleaner_FlowBeginsAfterSweep: clients whose packets enter the kernel's table after the first sweep that
// follows a repair reach the endpoint. Here the sweep precedes the packets and the rules, and nothing else causes a
// sweep.
func TestKernelCleaner_FlowBeginsAfterSweep(t *testing.T) {
	eachFamily(t, func(w *world) {
		w.nft(others)
		w.serve(w.view(w.a))
		w.flush()
		w.repaired()
		clients := []*peer{w.dial(w.clusterIP, servicePort), w.dial(w.plan.node.Addr(), nodePort)}
		for _, p := range clients {
			w.check(p.Send())
		}
		w.repair()
		began := time.Now()
		for _, p := range clients {
			p.goesOn("a", "a client that began after the sweep")
		}
		t.Logf("%d clients answered %v after the rules were back", len(clients), time.Since(began).Round(time.Millisecond))
	})
}

// TestKernelCleaner_StartFindsRulesMissing: if another program flushed the rules while no process ran, the first view
// of a Service is enough to delete the flow of a client that continues to send.
func TestKernelCleaner_StartFindsRulesMissing(t *testing.T) {
	eachFamily(t, func(w *world) {
		w.serve(w.view(w.a))
		w.stop()
		w.flush()
		p := w.dial(w.clusterIP, servicePort)
		p.ask(hush)
		w.repair()
		if who, _ := p.ask(hush); who == "a" {
			t.Fatal("a answers before the clean-up, so that the rest proves nothing")
		}
		w.start()
		w.expectDeleted(w.tell(w.view(w.a)), 1, "the first view after the start")
		p.goesOn("a", "after the start")
	})
}

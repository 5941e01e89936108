package conformance

import (
	"bytes"
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane/memory"
	"github.com/sluice-proxy/sluice/service"
)

// miniature is a hand-written ruleset with one frontend for each thing that can
// become of a connection.
func miniature(world Fixture) string {
	to := func(addr netip.Addr) string { return netip.AddrPortFrom(addr, endpointPort).String() }
	return strings.Join([]string{
		"*filter",
		fmt.Sprintf("-A FORWARD -p tcp -d %s --dport 81 -j REJECT", world.ClusterIP),
		fmt.Sprintf("-A OUTPUT -p tcp -d %s --dport 81 -j REJECT", world.ClusterIP),
		fmt.Sprintf("-A FORWARD -p tcp -d %s --dport 82 -j DROP", world.ClusterIP),
		fmt.Sprintf("-A OUTPUT -p tcp -d %s --dport 82 -j DROP", world.ClusterIP),
		"-A INPUT -m addrtype --dst-type LOCAL -p tcp --dport 30081 -j DROP",
		"COMMIT",
		"*nat", ":S - [0:0]", ":B - [0:0]", ":P - [0:0]",
		"-A PREROUTING -j S", "-A OUTPUT -j S", "-A POSTROUTING -j P",
		"-A P -m mark --mark 0x1/0x1 -j MASQUERADE",
		fmt.Sprintf("-A S -p tcp -d %s --dport 80 -j B", world.ClusterIP),
		"-A S -m addrtype --dst-type LOCAL -p tcp --dport 30080 -j MARK --or-mark 0x1",
		"-A S -m addrtype --dst-type LOCAL -p tcp --dport 30080 -j B",
		fmt.Sprintf("-A B -s %s -j MARK --or-mark 0x1", world.A),
		fmt.Sprintf("-A B ! -s %s -j MARK --or-mark 0x1", world.ClusterCIDR),
		"-A B -p tcp -j DNAT --to-destination " + to(world.A),
		fmt.Sprintf("-A S -p udp -d %s --dport 80 -j MARK --or-mark 0x1", world.ClusterIP),
		fmt.Sprintf("-A S -p udp -d %s --dport 80 -j DNAT --to-destination %s", world.ClusterIP, to(world.B)),
		"COMMIT", "",
	}, "\n")
}

// TestProbesAgree asks both probes the same questions about the same rules: what
// the tracer answers is what sockets see.
func TestProbesAgree(t *testing.T) {
	for _, family := range service.Families {
		t.Run(family.String(), func(t *testing.T) {
			t.Parallel()
			world := NewFixture(family)
			network := NewNetwork(t, world)
			program := "iptables-nft-restore"
			if family == service.IPv6 {
				program = "ip6tables-nft-restore"
			}
			cmd := exec.Command(program, "--noflush")
			var said bytes.Buffer
			cmd.Stdin, cmd.Stderr = strings.NewReader(miniature(world)), &said
			if err := network.Node().Run(cmd); err != nil {
				t.Fatalf("%v: %s (Debian package iptables)", err, said.String())
			}
			kernel := memory.NewKernel(family)
			if err := kernel.Restore(t.Context(), []byte(miniature(world))); err != nil {
				t.Fatal(err)
			}
			compareProbes(t, world, NewTracer(kernel, world, 1), network)
		})
	}
}

func compareProbes(t *testing.T, world Fixture, tracer *Tracer, network *Network) {
	t.Helper()
	var questions []Question
	for _, to := range []netip.AddrPort{
		netip.AddrPortFrom(world.A, endpointPort),
		netip.AddrPortFrom(world.B, endpointPort),
		netip.AddrPortFrom(world.ClusterIP, 80),
		netip.AddrPortFrom(world.ClusterIP, 81),
		netip.AddrPortFrom(world.ClusterIP, 82),
		netip.AddrPortFrom(world.ClusterIP, 83),
		netip.AddrPortFrom(world.Node, 30080),
		netip.AddrPortFrom(world.Second, 30080),
		netip.AddrPortFrom(world.Node, 30081),
		netip.AddrPortFrom(world.Node, 30082),
		netip.AddrPortFrom(world.VIP, 80),
	} {
		for from := FromPod; from <= FromStranger; from++ {
			questions = append(questions, Question{From: from, To: to})
		}
	}
	datagrams := netip.AddrPortFrom(world.ClusterIP, 80)
	for _, from := range []Client{FromPod, FromNode} {
		questions = append(questions, Question{From: from, To: datagrams, Protocol: service.UDP})
	}
	fates := make(map[Fate]int)
	var asking sync.WaitGroup
	for _, q := range questions {
		want := tracer.Ask(t, q)
		fates[want.Fate]++
		q.Patience = answerPatience
		if want.Fate == Silent {
			q.Patience = silencePatience
		}
		asking.Go(func() {
			if got := network.Ask(t, q); got != want {
				t.Errorf("%v: sockets see %v, the tracer says %v", q, got, want)
			}
		})
	}
	asking.Wait()
	if len(fates) != 4 {
		t.Errorf("the questions led to %v, want answers, ways through, refusals and silence", fates)
	}
}

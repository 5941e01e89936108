package harness

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/internal/host/netns"
)

// Without any proxy, every client reaches every pod directly, with its own address.
func TestNetworkConnectsEveryone(t *testing.T) {
	n, err := NewNetwork()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	for _, pod := range n.Pods() {
		for _, addr := range []netip.Addr{pod.V4, pod.V6} {
			b, err := netns.StartBackend(pod.Namespace, pod.Name(), netip.AddrPortFrom(addr, BackendPort))
			if err != nil {
				t.Fatal(err)
			}
			for _, client := range []*Host{n.X, n.P1, n.N1, n.N2, n.API} {
				answer, err := client.Ask(t.Context(), "tcp", b.Addr())
				if err != nil {
					t.Errorf("%s to %s: %v", client.Name(), pod.Name(), err)
					continue
				}
				if client != n.N1 && client != n.N2 && answer.Client.Addr() != client.V4 && answer.Client.Addr() != client.V6 {
					t.Errorf("%s to %s: seen as %s, want %s or %s", client.Name(), pod.Name(), answer.Client, client.V4, client.V6)
				}
			}
			if err := b.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// A datagram from a port whose earlier ones were not translated is not translated either, until the router
// is made to forget them.
func TestForgetFlows(t *testing.T) {
	n, err := NewNetwork()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	b, err := netns.StartBackend(n.A.Namespace, "a", netip.AddrPortFrom(n.A.V4, BackendPort))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	feed(t, n.N1, `table ip t {
	chain prerouting { type nat hook prerouting priority -100; }
	chain forward { type filter hook forward priority 0; ct state new counter; }
}
`, "nft", "-f", "-")
	var client net.Conn
	err = n.X.Do(func() error {
		var err error
		client, err = net.Dial("udp", "172.30.0.9:80")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() }) // nothing is left to be lost
	answered := func() bool {
		if _, err := client.Write([]byte("?")); err != nil {
			t.Fatal(err)
		}
		if err := client.SetReadDeadline(time.Now().Add(quickMax)); err != nil {
			t.Fatal(err)
		}
		_, err := client.Read(make([]byte, 100))
		return err == nil
	}
	if answered() {
		t.Fatal("somebody answers before there is a rule")
	}
	feed(t, n.N1, "add rule ip t prerouting meta l4proto udp ip daddr 172.30.0.9 dnat to "+n.A.V4.String()+":8080", "nft", "-f", "-")
	if answered() {
		t.Error("the rule is used for a flow that was not translated before")
	}
	if err := n.N1.ForgetFlows(); err != nil {
		t.Fatal(err)
	}
	if !answered() {
		t.Error("no answer after the flow was forgotten")
	}
}

package harness

import (
	"net/netip"
	"testing"

	"github.com/sluice-proxy/sluice/internal/netns"
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

package netns

import (
	"net/netip"
	"testing"
	"time"
)

// TestQueueHoldsFirstPackets: the first datagram of a flow is late, later ones are not.
func TestQueueHoldsFirstPackets(t *testing.T) {
	const held = 200 * time.Millisecond
	hosts := buildNetwork(t, Plan{Cables: []Cable{{
		Router: "router", Leaf: "client", Port: "p1", AtRouter: Prefixes("10.9.1.1/24", "fd09:1::1/64"), AtLeaf: Prefixes("10.9.1.2/24", "fd09:1::2/64"),
	}, {
		Router: "router", Leaf: "server", Port: "p2", AtRouter: Prefixes("10.9.2.1/24", "fd09:2::1/64"), AtLeaf: Prefixes("10.9.2.2/24", "fd09:2::2/64"),
	}}}).Hosts
	q, err := hosts["router"].Hold(held)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := q.Close(); err != nil {
			t.Error(err)
		}
	}()
	for _, at := range []string{"10.9.2.2:53", "[fd09:2::2]:53"} {
		server := netip.MustParseAddrPort(at)
		startBackend(t, hosts["server"], "b", server)
		flow, err := hosts["client"].OpenFlow(t.Context(), netip.AddrPort{}, server)
		if err != nil {
			t.Fatal(err)
		}
		took := func() time.Duration {
			began := time.Now()
			if _, err := flow.Ask(t.Context()); err != nil {
				t.Error(err)
			}
			return time.Since(began)
		}
		if first := took(); first < held {
			t.Errorf("%v: the first datagram was answered after %v, want %v or more", server, first, held)
		}
		if second := min(took(), took()); second >= held {
			t.Errorf("%v: a later datagram was answered after %v, want less than %v", server, second, held)
		}
		if err := flow.Close(); err != nil {
			t.Error(err)
		}
	}
}

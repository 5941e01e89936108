// SPDX-License-Identifier: Apache-2.0

package netnstest

import (
	"net/netip"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// TestQueue_HoldsFirstPackets: a queue delays the first datagram of a flow, and not later ones.
func TestQueue_HoldsFirstPackets(t *testing.T) {
	const held = 500 * time.Millisecond
	hosts := Build(t, Plan{Cables: []netns.Cable{{
		Router: "router", Leaf: "client", Port: "p1", AtRouter: netns.Prefixes("10.9.1.1/24", "fd09:1::1/64"), AtLeaf: netns.Prefixes("10.9.1.2/24", "fd09:1::2/64"),
	}, {
		Router: "router", Leaf: "server", Port: "p2", AtRouter: netns.Prefixes("10.9.2.1/24", "fd09:2::1/64"), AtLeaf: netns.Prefixes("10.9.2.2/24", "fd09:2::2/64"),
	}}}).Hosts
	q, err := Hold(hosts["router"], held)
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
		Serve(t, hosts["server"], "b", server)
		flow, err := OpenFlow(t.Context(), hosts["client"], netip.AddrPort{}, server)
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
		testenv.Eventually(t, at+" answers a later datagram at once", func() bool { return took() < held })
		if err := flow.Close(); err != nil {
			t.Error(err)
		}
	}
}

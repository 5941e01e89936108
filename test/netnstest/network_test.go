// SPDX-License-Identifier: Apache-2.0

package netnstest

import (
	"net/netip"
	"testing"

	"github.com/sluice-proxy/sluice/internal/host/netns"
)

// TestNetwork_PacketsCrossRouters: packets cross two routers in both families as soon as the network is built, between
// addresses on a common prefix, single addresses, and those on loopback.
func TestNetwork_PacketsCrossRouters(t *testing.T) {
	client := netns.Prefixes("10.0.1.2/24", "fd00:1::2/128")
	servers := []netip.AddrPort{
		netip.MustParseAddrPort("10.0.2.2:80"), netip.MustParseAddrPort("[fd00:2::2]:80"), netip.MustParseAddrPort("192.0.2.7:80"),
	}
	n := Build(t, Plan{
		Cables: []netns.Cable{
			{Router: "r1", Leaf: "client", Port: "client0", AtRouter: netns.Prefixes("10.0.1.1/24", "fd00::1/128"), AtLeaf: client},
			{Router: "r1", Leaf: "r2", Port: "r2", AtRouter: netns.Prefixes("10.0.0.1/24", "fd00:f::1/64"), AtLeaf: netns.Prefixes("10.0.0.2/24", "fd00:f::2/64")},
			{Router: "r2", Leaf: "server", Port: "server0", AtRouter: netns.Prefixes("10.0.2.1/24", "fd00:2::1/64"), AtLeaf: netns.Prefixes("10.0.2.2/24", "fd00:2::2/64")},
		},
		Loopback: map[string][]netip.Addr{"server": {servers[2].Addr()}},
		Routes: []Route{
			{"r1", netip.MustParsePrefix("10.0.2.0/24"), netip.MustParseAddr("10.0.0.2")},
			{"r1", netip.MustParsePrefix("fd00:2::/64"), netip.MustParseAddr("fd00:f::2")},
			{"r1", netip.MustParsePrefix("192.0.2.7/32"), netip.MustParseAddr("10.0.0.2")},
			{"r2", netip.MustParsePrefix("192.0.2.7/32"), netip.MustParseAddr("10.0.2.2")},
		},
		Servers: []Server{{"s", "server", servers[0]}, {"s", "server", servers[1]}, {"s", "server", servers[2]}},
	})
	for _, at := range servers {
		seen := client[0]
		if at.Addr().Is6() {
			seen = client[1]
		}
		for _, network := range []string{"tcp", "udp"} {
			answer, err := Ask(t.Context(), n.Hosts["client"], network, at)
			if err != nil || answer.Backend != "s" || answer.Client.Addr() != seen.Addr() {
				t.Errorf("%s %s answered %+v, %v, want s to %s", network, at, answer, err, seen.Addr())
			}
		}
	}
	if host := n.HostAt(servers[0].Addr()); host != n.Hosts["server"] || n.HostAt(client[0].Addr()) != nil {
		t.Errorf("host at %v is %v", servers[0], host)
	}
	if err := n.Leave(servers[0]); err != nil || n.Servers() != 2 {
		t.Errorf("%v, %d servers left, want 2", err, n.Servers())
	}
	if err := n.Leave(servers[0]); err == nil {
		t.Error("a server left twice")
	}
	if answer, err := Ask(t.Context(), n.Hosts["client"], "tcp", servers[0]); err == nil {
		t.Errorf("%+v answers after it has left", answer)
	}
}

// TestNetwork_AddAddressAndRoute: a route leads to an address that was added to the loopback of another namespace.
func TestNetwork_AddAddressAndRoute(t *testing.T) {
	a, b := New(t, "a"), New(t, "b")
	err := netns.Link(a, b, netns.LinkSpec{
		NameA: "eth0", AddrsA: netns.Prefixes("10.0.0.1/24", "fd00::1/64"),
		NameB: "eth0", AddrsB: netns.Prefixes("10.0.0.2/24", "fd00::2/64"),
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ extra, via string }{{"192.0.2.7/32", "10.0.0.2"}, {"2001:db8::7/128", "fd00::2"}} {
		extra := netip.MustParsePrefix(test.extra)
		if err := b.AddAddress("lo", extra); err != nil {
			t.Fatal(err)
		}
		if err := a.AddRoute(extra, netip.MustParseAddr(test.via)); err != nil {
			t.Fatal(err)
		}
		backend := Serve(t, b, "extra", netip.AddrPortFrom(extra.Addr(), 0))
		if _, err := Ask(t.Context(), a, "tcp", backend.Addr()); err != nil {
			t.Error(err)
		}
	}
}

package netns

import (
	"net/netip"
	"strings"
	"testing"
)

// An address added to the far loopback is reached through its route.
func TestAddAddressAndRoute(t *testing.T) {
	a, b := newNamespace(t, "a"), newNamespace(t, "b")
	err := Link(a, b, LinkSpec{
		NameA: "eth0", AddrsA: Prefixes("10.0.0.1/24", "fd00::1/64"),
		NameB: "eth0", AddrsB: Prefixes("10.0.0.2/24", "fd00::2/64"),
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
		backend := startBackend(t, b, "extra", netip.AddrPortFrom(extra.Addr(), 0))
		if _, err := a.Ask(t.Context(), "tcp", backend.Addr()); err != nil {
			t.Error(err)
		}
	}
}

func TestLinkThatFailsLeavesNothing(t *testing.T) {
	a, b := newNamespace(t, "a"), newNamespace(t, "b")
	twice := Prefixes("10.0.0.1/24", "10.0.0.1/24")
	err := Link(a, b, LinkSpec{NameA: "eth0", NameB: "eth0", AddrsB: twice})
	if err == nil || !strings.Contains(err.Error(), "netns b: add address 10.0.0.1/24 to eth0") {
		t.Errorf("Link with an address given twice: %v", err)
	}
	for _, n := range []*Namespace{a, b} {
		if _, err := n.link("eth0"); err == nil {
			t.Errorf("eth0 is still in %s", n.Name())
		}
	}
}

func TestLinkErrorsSayWhere(t *testing.T) {
	a, b := newNamespace(t, "a"), newNamespace(t, "b")
	err := Link(a, b, LinkSpec{NameA: "a-name-longer-than-15", NameB: "eth0"})
	if err == nil || !strings.Contains(err.Error(), "netns a: link a-name-longer-than-15 to eth0 in netns b") {
		t.Errorf("Link with a long name: %v", err)
	}
	if err := a.DeleteLink("nope"); err == nil || !strings.Contains(err.Error(), "netns a: find nope") {
		t.Errorf("DeleteLink of a missing one: %v", err)
	}
	unreachable := netip.MustParseAddr("192.0.2.1")
	if err := a.AddRoute(netip.MustParsePrefix("10.9.0.0/16"), unreachable); err == nil {
		t.Error("AddRoute through an unreachable neighbour = nil, want an error")
	}
}

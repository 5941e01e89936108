// SPDX-License-Identifier: Apache-2.0

package netns

import (
	"net/netip"
	"strings"
	"testing"
)

// TestLink_FailureLeavesNothing: a failed Link leaves no device.
func TestLink_FailureLeavesNothing(t *testing.T) {
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

// TestLink_ErrorsSayWhere: errors of links and routes name the namespace and the device.
func TestLink_ErrorsSayWhere(t *testing.T) {
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

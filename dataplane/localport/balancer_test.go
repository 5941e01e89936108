// SPDX-License-Identifier: Apache-2.0

package localport

import (
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

var pods = []netip.AddrPort{
	netip.MustParseAddrPort("10.0.0.1:8080"), netip.MustParseAddrPort("10.0.0.2:8080"), netip.MustParseAddrPort("10.0.0.3:8080"),
}

// picked returns the targets of some clients, sorted, each once.
func picked(b *balancer) []netip.AddrPort {
	var all []netip.AddrPort
	for range 200 { // one of three stays unseen with a probability of 1e-34
		all = append(all, b.Targets(netip.AddrPort{})...)
	}
	slices.SortFunc(all, netip.AddrPort.Compare)
	return slices.Compact(all)
}

// TestBalancer_PicksEveryTarget: the balancer picks every target, and a session stays with its target as long as the
// target exists.
func TestBalancer_PicksEveryTarget(t *testing.T) {
	b := newBalancer(targets{to: pods}, nil)
	if got := picked(b); !slices.Equal(got, pods) {
		t.Errorf("picked %v, want %v", got, pods)
	}
	if b.Keeps(netip.Addr{}, netip.MustParseAddrPort("10.0.0.4:8080")) || !b.Keeps(netip.Addr{}, pods[1]) {
		t.Error("a session must stay with its target exactly as long as that is one")
	}
}

// TestBalancer_RemembersOneTarget: with affinity, the balancer keeps to one target. Each connection renews the
// affinity; removing the target, changing the timeout or a pause ends it.
func TestBalancer_RemembersOneTarget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sticky := targets{to: pods, affinity: time.Minute}
		b := newBalancer(sticky, nil)
		first := picked(b)
		if len(first) != 1 {
			t.Fatalf("picked %v, want one target", first)
		}
		for range 3 {
			time.Sleep(50 * time.Second)
			if got := picked(b); !slices.Equal(got, first) {
				t.Errorf("picked %v within the time of %v", got, first)
			}
		}
		if got := picked(newBalancer(sticky, b)); !slices.Equal(got, first) {
			t.Errorf("with the same targets written again picked %v, had %v", got, first)
		}
		rest := slices.DeleteFunc(slices.Clone(pods), func(a netip.AddrPort) bool { return a == first[0] })
		if got := picked(newBalancer(targets{to: rest, affinity: time.Minute}, b)); len(got) != 1 || got[0] == first[0] {
			t.Errorf("picked %v after %v was removed", got, first)
		}
		seen := make(map[netip.AddrPort]bool)
		for range 200 {
			time.Sleep(61 * time.Second)
			seen[b.Targets(netip.AddrPort{})[0]] = true
		}
		if len(seen) != len(pods) {
			t.Errorf("after pauses picked %v only", seen)
		}
		clear(seen)
		for range 200 {
			seen[newBalancer(targets{to: pods, affinity: time.Hour}, b).Targets(netip.AddrPort{})[0]] = true
		}
		if len(seen) != len(pods) {
			t.Errorf("with another timeout picked %v only", seen)
		}
	})
}

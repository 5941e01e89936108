// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"maps"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/nftables/render"
	"github.com/sluice-proxy/sluice/internal/netlink"
	"github.com/sluice-proxy/sluice/service"
)

// TestTurns_LargeServicesAlternate: two large Services that change all the time, as a tenant may cause, take turns, and
// a small Service does not wait.
func TestTurns_LargeServicesAlternate(t *testing.T) {
	a, b, small := service.Key{Namespace: "a", Name: "x"}, service.Key{Namespace: "b", Name: "x"}, service.Key{Namespace: "c", Name: "x"}
	var changes []dataplane.Change
	for range 30 {
		changes = append(changes, dataplane.Change{Owner: a}, dataplane.Change{Owner: b})
	}
	changes = append(changes, dataplane.Change{Owner: small})
	large := turns{most: 10}
	var served []service.Key
	for range 4 {
		now := large.choose(changes)
		if served = append(served, large.last); len(now) == len(changes) || now[len(now)-1].Owner != small {
			t.Errorf("%d now of %d; the small Service waits", len(now), len(changes))
		}
	}
	if !slices.Equal(served, []service.Key{a, b, a, b}) {
		t.Errorf("turns of %v", served)
	}
}

// TestTurns_LoserWaitsWithTaker: a small Service that loses a frontend to a large one keeps its chain until the large
// one has the frontend. In the turn of a large loser, nothing is divided. The kernel does not delete a chain to which a
// frontend leads.
func TestTurns_LoserWaitsWithTaker(t *testing.T) {
	taker, loser, other := service.Key{Namespace: "a", Name: "x"}, service.Key{Namespace: "b", Name: "x"}, service.Key{Namespace: "c", Name: "x"}
	chain := func(name string) *dataplane.Object {
		return &dataplane.Object{ID: dataplane.ID{Container: render.ContainerChain, Name: name}, Kind: dataplane.Owned}
	}
	frontend := func(to string) *dataplane.Object {
		b, data := netlink.Nest(nil, unix.NFTA_SET_ELEM_DATA)
		b, verdict := netlink.Nest(b, unix.NFTA_DATA_VERDICT)
		b = netlink.AppendUint32(b, unix.NFTA_VERDICT_CODE, uint32(0xfffffffc)) // goto
		b = netlink.AppendText(b, unix.NFTA_VERDICT_CHAIN, to)
		b = netlink.End(netlink.End(b, verdict), data)
		return &dataplane.Object{ID: dataplane.ID{Container: inFrontends, Name: "f"}, Kind: dataplane.Element, Body: string(b)}
	}
	slots := render.ContainerOf(render.SetName("nodeport-cluster-endpoints"))
	if !render.HasSlots(slots) {
		t.Fatalf("%s has no slots", slots)
	}
	for name, test := range map[string]struct {
		losing int
		want   map[service.Key]int
	}{
		"small": {1, map[service.Key]int{taker: 10, other: 1}},
		"large": {30, map[service.Key]int{taker: 32, other: 1, loser: 31}},
	} {
		changes := []dataplane.Change{
			{ID: frontend("").ID, Before: frontend("of-loser"), After: frontend("of-taker"), Owner: taker},
			{ID: chain("of-taker").ID, After: chain("of-taker"), Owner: taker},
			{ID: chain("of-loser").ID, Before: chain("of-loser"), Owner: loser},
			{ID: chain("of-other").ID, Before: chain("of-other"), Owner: other},
		}
		for range 30 {
			changes = append(changes, dataplane.Change{ID: dataplane.ID{Container: slots}, After: chain("slot"), Owner: taker})
		}
		for range test.losing {
			changes = append(changes, dataplane.Change{Owner: loser, Before: chain("")})
		}
		large := turns{most: 10, last: taker}
		choose := func() map[service.Key]int {
			got := map[service.Key]int{}
			for _, c := range large.choose(changes) {
				got[c.Owner]++
			}
			return got
		}
		if got := choose(); !maps.Equal(got, test.want) {
			t.Errorf("%s: %v now of %d, want %v", name, got, len(changes), test.want)
		}
		for range dataplane.WaitedMax - 1 {
			choose()
		}
		if got := choose(); got[loser] != test.losing+1 {
			t.Errorf("%s: the loser still waits after %d turns: %v", name, dataplane.WaitedMax, got)
		}
	}
}

// TestTurns_SlotsOfUnknownState: slots of unknown state change together with their frontends, because packets may look
// them up already.
func TestTurns_SlotsOfUnknownState(t *testing.T) {
	large := service.Key{Namespace: "a", Name: "x"}
	slots := render.ContainerOf(render.SetName("local-endpoints"))
	changes := []dataplane.Change{{ID: dataplane.ID{Container: inFrontends}, Owner: large, Before: &dataplane.Object{}, After: &dataplane.Object{}}}
	for range 30 {
		changes = append(changes,
			dataplane.Change{ID: dataplane.ID{Container: slots}, Owner: large, After: &dataplane.Object{}, Unsure: true},
			dataplane.Change{ID: dataplane.ID{Container: slots}, Owner: large, Before: &dataplane.Object{}})
	}
	now := (&turns{most: 10}).choose(changes)
	if len(now) != 31 {
		t.Errorf("%d changes, want the frontend and 30 slots of unknown state", len(now))
	}
}

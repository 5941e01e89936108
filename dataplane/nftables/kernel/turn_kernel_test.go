// SPDX-License-Identifier: Apache-2.0

package kernel_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/nftables/kernel"
	"github.com/sluice-proxy/sluice/dataplane/nftables/render"
	"github.com/sluice-proxy/sluice/service"
)

// wide is a Service with 20 ports and endpoints from a number on.
func wide(endpoints, from int) *service.View {
	view := plain(60000, 1, 0)
	port := view.Ports[service.IPv4][0]
	port.Cluster, view.Ports[service.IPv4] = nil, nil
	for i := from; i < from+endpoints; i++ {
		addr := netip.AddrFrom4([4]byte{10, 200, byte(i >> 8), byte(i)})
		port.Cluster = append(port.Cluster, service.Endpoint{AddrPort: netip.AddrPortFrom(addr, 80)})
	}
	for i := range 20 {
		port.Name, port.Port = fmt.Sprint("p", i), uint16(1000+i)
		view.Ports[service.IPv4] = append(view.Ports[service.IPv4], port)
	}
	return view
}

// exposed is a Service with many external addresses.
func exposed(addresses int) *service.View {
	view := plain(60001, 1, 0)
	port := &view.Ports[service.IPv4][0]
	for i := range addresses {
		port.ExternalIPs = append(port.ExternalIPs, netip.AddrFrom4([4]byte{198, 18, byte(i >> 8), byte(i)}))
	}
	return view
}

// TestTurns_LargeServiceDivided: the first write, changes, scaling and the last write of a large Service are divided.
// Each turn writes all changes of other Services and a limited number of objects of the large one, and in the end the
// kernel has what is wanted.
func TestTurns_LargeServiceDivided(t *testing.T) {
	const most = 200
	w := newWorld(t, service.IPv4, kernel.WriterConfig{TurnObjects: most})
	w.commit()
	other := 0
	turns := func(name string, least int) {
		t.Helper()
		for n := 1; ; n++ {
			other++
			w.serve(plain(7, 3, other)) // another Service changes meanwhile
			all := w.ledger.Plan()
			batch := w.ledger.PlanPart(w.writer.Contract().Cut)
			isInOrder(t, all.Changes, batch, most)
			receipt := w.writer.Write(t.Context(), batch)
			if receipt.Outcome != dataplane.Landed || receipt.Written.Objects > most+60 {
				t.Fatalf("%s, turn %d: %d objects, %v", name, n, receipt.Written.Objects, receipt)
			}
			settled := w.ledger.Settle(batch, receipt)
			if settled[len(settled)-1].Key != plain(7, 0, 0).Key && settled[0].Key != plain(7, 0, 0).Key {
				t.Fatalf("%s, turn %d: the other Service waits; settled: %v", name, n, settled)
			}
			if batch.Left == 0 {
				if n < least {
					t.Errorf("%s: %d turns, want at least %d", name, n, least)
				}
				break
			}
		}
		if drift := w.audit(); drift.Any() || w.ledger.Stats().Dirty > 0 {
			t.Errorf("%s: %+v", name, drift)
		}
	}
	w.serve(wide(100, 0))
	turns("first", 10)
	w.serve(wide(100, 100))
	turns("all endpoints change", 10)
	w.serve(wide(150, 100))
	turns("scaled up", 5)
	w.serve(wide(20, 110))
	turns("scaled down", 10)
	w.serve(wide(100, 0))
	turns("both", 8)
	w.want(wide(1, 0).Key, nil)
	turns("last", 10)
	w.serve(exposed(1000))
	turns("first frontends", 5)
	w.want(exposed(1).Key, nil)
	turns("last frontends", 5)
}

// TestTurns_LargeServiceLastInNewTable: the first write into an empty kernel or after a foreign deletion of the table
// contains the node's rules and the small Services, and a large Service follows in turns. Rules of the node that serve
// a large Service change together with it.
func TestTurns_LargeServiceLastInNewTable(t *testing.T) {
	const most = 200
	w := newWorld(t, service.IPv4, kernel.WriterConfig{TurnObjects: most})
	fill := func(name string) {
		t.Helper()
		for n := 1; ; n++ {
			batch := w.ledger.PlanPart(w.writer.Contract().Cut)
			receipt := w.writer.Write(t.Context(), batch)
			if receipt.Outcome != dataplane.Landed {
				t.Fatalf("%s, write %d: %v", name, n, receipt)
			}
			w.ledger.Settle(batch, receipt)
			if n == 1 && (!w.ledger.Whole(plain(7, 0, 0).Key) || w.ledger.Whole(wide(1, 0).Key)) {
				t.Errorf("%s: the first write has %d objects, want those of the small Service and none of the large one",
					name, receipt.Written.Objects)
			}
			if batch.Left == 0 {
				if n < 5 {
					t.Errorf("%s: %d writes", name, n)
				}
				break
			}
		}
		if drift := w.audit(); drift.Any() || w.ledger.Stats().Dirty > 0 {
			t.Errorf("%s: %+v", name, drift)
		}
	}
	w.serve(wide(100, 0))
	w.serve(plain(7, 3, 0))
	fill("first write")
	w.nft("", "flush", "ruleset")
	w.audit()
	fill("repair")
	w.facts.ServiceCIDRs[service.IPv4] = nil
	w.want(service.Node, w.renderer.Node(&w.facts))
	w.serve(wide(100, 100))
	if batch := w.ledger.Plan(); !slices.ContainsFunc(batch.Changes, func(c dataplane.Change) bool { return c.Owner == service.Node }) {
		t.Error("no rule of the node changes")
	} else if left := len(batch.Changes) - len(w.writer.Contract().Cut(batch.Changes)); left > 0 {
		t.Errorf("%d changes of a large Service that is served are left, although the rules of the node change", left)
	}
}

// isInOrder fails if a turn would change a frontend before all its new slots exist, or remove a slot that a frontend may
// refer to.
func isInOrder(t *testing.T, all []dataplane.Change, batch *dataplane.Batch, most int) {
	t.Helper()
	now := map[dataplane.ID]bool{}
	for _, c := range batch.Changes {
		now[c.ID] = true
	}
	left := slices.DeleteFunc(all, func(c dataplane.Change) bool { return now[c.ID] })
	if len(left) != batch.Left {
		t.Fatalf("%d changes are left, and the batch says %d", len(left), batch.Left)
	}
	frontends := render.ContainerOf(render.SetName("frontends"))
	var added, frontend, rest bool // whether any such change is left
	for _, c := range left {
		slot := render.HasSlots(c.ID.Container)
		added = added || slot && c.After != nil
		frontend = frontend || c.ID.Container == frontends
		rest = rest || !slot && c.ID.Container != frontends
	}
	for _, c := range batch.Changes {
		slot, leads := render.HasSlots(c.ID.Container), c.ID.Container == frontends
		switch {
		case c.Owner != wide(1, 0).Key && c.Owner != exposed(1).Key, leads && c.After == nil && !added:
		case !slot && added, slot && c.After == nil && (added || frontend || rest), leads && rest, !slot && !leads && c.After == nil && frontend:
			t.Fatalf("%v comes before what is left", c.ID)
		}
	}
}

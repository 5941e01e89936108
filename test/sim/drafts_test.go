// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"maps"
	"slices"
	"testing"

	"github.com/sluice-proxy/sluice/service"
)

// TestDrafts_CombinationCostsDifference: rendering a combination of states costs as much as it differs from earlier
// ones, and equals the table of a kernel that receives it in one transaction.
func TestDrafts_CombinationCostsDifference(t *testing.T) {
	const family, states = service.IPv4, 8
	settledWorld(t, func(w *world) {
		there, err := w.matchFamily(family)
		if err != nil {
			t.Fatal(err)
		}
		if len(there) < 10 {
			t.Fatalf("%d Services: that would prove nothing", len(there))
		}
		w.drafted().rendered = 0
		if _, err := w.matchFamily(family); err != nil || w.drafts.rendered > 0 {
			t.Errorf("the same check renders %d Services: %v", w.drafts.rendered, err)
		}
		differ := []int{2, 7}
		variants := map[int][]served{}
		for _, i := range differ {
			for v := range uint64(states) {
				s := there[i].state
				s.spec = specOf(there[i].n, 1000+v)
				variants[i] = append(variants[i], serve(there[i].n, s))
			}
		}
		var distinct []items
		for a := range states {
			for b := range states {
				all := slices.Clone(there)
				all[differ[0]], all[differ[1]] = variants[differ[0]][a], variants[differ[1]][b]
				joined, err := w.expectedItems(family, all, asRendered)
				if err != nil {
					t.Fatal(err)
				}
				full, err := w.itemsInFull(family, all, asRendered)
				if err != nil || !maps.Equal(joined, full) {
					t.Errorf("states %d and %d: joined are %d parts, in full %d: %v", a, b, len(joined), len(full), err)
				}
				if !slices.ContainsFunc(distinct, func(other items) bool { return maps.Equal(joined, other) }) {
					distinct = append(distinct, joined)
				}
			}
		}
		if len(distinct) < states {
			t.Errorf("%d different tables: that proves little", len(distinct))
		}
		// A Service that loses a contested frontend, or gets it back, is rendered as well.
		if most := 2 * len(differ) * states; w.drafts.rendered > most {
			t.Errorf("%d combinations render %d Services, want at most %d", states*states, w.drafts.rendered, most)
		}
		t.Logf("%d combinations, %d of them different, render %d Services", states*states, len(distinct), w.drafts.rendered)
	})
}

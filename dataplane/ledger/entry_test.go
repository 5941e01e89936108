// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"maps"
	"math/rand/v2"
	"testing"
)

// TestDirtyList_AgainstWalk plays random changes of entries against a walk over all of them.
func TestDirtyList_AgainstWalk(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var entries []*entry
	for range 20 {
		entries = append(entries, &entry{})
	}
	var list dirtyList
	for step := range 5000 {
		for _, e := range entries {
			if random.IntN(8) == 0 {
				e.unsure = random.IntN(2) == 0
				list.note(e)
			}
		}
		if random.IntN(4) == 0 {
			list.reset()
		}
		if random.IntN(3) > 0 {
			continue
		}
		want := map[*entry]bool{}
		for _, e := range entries {
			if e.differs() {
				want[e] = true
			}
		}
		got := map[*entry]bool{}
		for _, e := range list.dirty() {
			got[e] = true
		}
		if !maps.Equal(got, want) || len(list.dirty()) != len(want) || list.count != len(want) {
			t.Fatalf("step %d: %v dirty, counted as %d; want %v", step, got, list.count, want)
		}
	}
}

// TestDirtyList_ForgetsWhenNothingDiffers: a reset keeps entries that differ and forgets the others, which can be
// listed again. Otherwise each plan would walk over everything that a cold start listed.
func TestDirtyList_ForgetsWhenNothingDiffers(t *testing.T) {
	var list dirtyList
	e := &entry{unsure: true}
	list.note(e)
	list.reset()
	if len(list.listed) != 1 {
		t.Fatal("forgot what is dirty")
	}
	e.unsure = false
	list.note(e)
	if list.reset(); len(list.listed) != 0 || list.count != 0 {
		t.Fatalf("%d listed, %d counted", len(list.listed), list.count)
	}
	e.unsure = true
	list.note(e)
	if got := list.dirty(); len(got) != 1 || got[0] != e {
		t.Fatalf("listed anew: %v", got)
	}
}

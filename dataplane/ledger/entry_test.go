package ledger

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane"
)

// TestDirtyListAgainstAWalk plays random changes of entries against a walk over
// all of them.
func TestDirtyListAgainstAWalk(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	entries := map[dataplane.ID]*entry{}
	for i := range 20 {
		entries[dataplane.ID{Container: "c", Name: strconv.Itoa(i)}] = &entry{}
	}
	var list dirtyList
	for step := range 5000 {
		for id, e := range entries {
			if random.IntN(8) == 0 {
				e.unsure = random.IntN(2) == 0
				list.note(id, e)
			}
		}
		if random.IntN(4) == 0 {
			list.reset()
		}
		if random.IntN(3) > 0 {
			continue
		}
		var want []dataplane.ID
		for id, e := range entries {
			if e.differs() {
				want = append(want, id)
			}
		}
		slices.SortFunc(want, dataplane.ID.Compare)
		var got []dataplane.ID
		for _, l := range list.sorted() {
			got = append(got, l.id)
		}
		if !slices.Equal(got, want) || list.count != len(want) {
			t.Fatalf("step %d: %v dirty, counted as %d; want %v", step, got, list.count, want)
		}
	}
}

// TestDirtyListForgetsWhenNothingDiffers: what a cold start has listed is not
// walked over again, and an entry can be listed anew.
func TestDirtyListForgetsWhenNothingDiffers(t *testing.T) {
	var list dirtyList
	id, e := dataplane.ID{Name: "x"}, &entry{unsure: true}
	list.note(id, e)
	list.reset()
	if len(list.listed) != 1 {
		t.Fatal("forgot what is dirty")
	}
	e.unsure = false
	list.note(id, e)
	if list.reset(); len(list.listed) != 0 || list.count != 0 {
		t.Fatalf("%d listed, %d counted", len(list.listed), list.count)
	}
	e.unsure = true
	list.note(id, e)
	if got := list.sorted(); len(got) != 1 || got[0].entry != e {
		t.Fatalf("listed anew: %v", got)
	}
}

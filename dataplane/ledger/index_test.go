package ledger

import (
	"math/rand/v2"
	"strconv"
	"testing"
	"unsafe"

	"github.com/sluice-proxy/sluice/dataplane"
)

func indexed(x *index, id dataplane.ID) *entry {
	e := x.demand(id)
	e.known = &dataplane.Object{ID: id}
	x.name(id, e)
	return e
}

// TestIndexAgainstAMap plays random changes against one map of identities. Few names keep
// the parts full of neighbours that come and go.
func TestIndexAgainstAMap(t *testing.T) {
	for _, names := range []int{3, 50, 5000} {
		random := rand.New(rand.NewPCG(1, 2))
		var x index
		model := map[dataplane.ID]*entry{}
		for step := range 40000 {
			id := dataplane.ID{Container: strconv.Itoa(random.IntN(5)), Name: strconv.Itoa(random.IntN(names))}
			switch e := model[id]; random.IntN(4) {
			case 0:
				if e != nil {
					x.remove(id, e)
					delete(model, id)
				}
			case 1:
				if e != nil { // nothing is known of it any more
					e.known = nil
					x.name(id, e)
				}
			default:
				if got := indexed(&x, id); e == nil {
					model[id] = got
				}
			}
			if x.get(id) != model[id] || x.count != len(model) {
				t.Fatalf("step %d: entry of %v is %p among %d, want %p among %d", step, id, x.get(id), x.count, model[id], len(model))
			}
		}
		checkWalk(t, &x, model, random)
	}
}

// checkWalk walks over an index, removes half of it on the way, and the rest in a second walk.
func checkWalk(t *testing.T, x *index, model map[dataplane.ID]*entry, random *rand.Rand) {
	t.Helper()
	for round := range 2 {
		walked, want := map[dataplane.ID]bool{}, len(model)
		for id, e := range x.all() {
			if model[id] != e || walked[id] {
				t.Fatalf("walked over %v, which is not there, or twice", id)
			}
			walked[id] = true
			if round == 1 || random.IntN(2) == 0 {
				x.remove(id, e)
				delete(model, id)
			}
		}
		if len(walked) != want || x.count != len(model) {
			t.Errorf("round %d: walked over %d of %d; %d are left, want %d", round, len(walked), want, x.count, len(model))
		}
		for id, e := range model {
			if x.get(id) != e {
				t.Fatalf("%v is lost after a walk", id)
			}
		}
	}
	for i := range x.parts {
		if len(x.parts[i].places) > 0 {
			t.Fatalf("an empty part keeps %d places", len(x.parts[i].places))
		}
	}
	if len(x.nameless) > 0 {
		t.Errorf("%d identities are left", len(x.nameless))
	}
}

// TestTheIndexGrowsByParts: no entry added moves more than the entries of its part, and
// none is farther from its place among many than among few.
func TestTheIndexGrowsByParts(t *testing.T) {
	for _, entries := range []int{2000, 200000} {
		var x index
		for i := range entries {
			indexed(&x, dataplane.ID{Container: "c", Name: strconv.Itoa(i)})
		}
		most, away := 0, 0
		for i := range x.parts {
			p := &x.parts[i]
			most = max(most, p.taken)
			for at, e := range p.places {
				if e != nil {
					away += (at - p.home(e.hash)) & (len(p.places) - 1)
				}
			}
		}
		if fair := entries / len(x.parts); most > 2*fair+16 {
			t.Errorf("the fullest part has %d of %d entries, want about %d", most, entries, fair)
		}
		if mean := float64(away) / float64(entries); mean > 1.5 {
			t.Errorf("among %d, an entry is %.1f places from its own, want at most 1.5", entries, mean)
		}
	}
}

// TestAnEntryIsSmall: there is one per object in the kernel, a million on a large node.
func TestAnEntryIsSmall(t *testing.T) {
	if size := unsafe.Sizeof(entry{}); size > 48 {
		t.Errorf("%d bytes, want at most 48", size)
	}
	if size := unsafe.Sizeof(account{}); size > 144 {
		t.Errorf("an account: %d bytes, want at most 144", size)
	}
}

// TestLookingUpAllocatesNothing: every change looks up its objects.
func TestLookingUpAllocatesNothing(t *testing.T) {
	var x index
	id := dataplane.ID{Container: "c", Name: "n"}
	indexed(&x, id)
	if n := testing.AllocsPerRun(100, func() { x.get(id) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

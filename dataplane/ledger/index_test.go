// SPDX-License-Identifier: Apache-2.0

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

// TestIndex_AgainstMap plays random changes against one map of identities, also with hashes of which most collide.
func TestIndex_AgainstMap(t *testing.T) {
	for names, hash := range map[int]func(dataplane.ID) uint64{
		50: nil, 5000: nil,
		20:  func(id dataplane.ID) uint64 { return uint64(len(id.Name)) },
		300: func(id dataplane.ID) uint64 { return uint64(id.Name[0]) },
	} {
		random := rand.New(rand.NewPCG(1, 2))
		x := index{hash: hash}
		model := map[dataplane.ID]*entry{}
		for step := range 10000 {
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
	if len(x.entries)+len(x.collided) > 0 {
		t.Fatalf("an empty index has %d entries, and %d hashes that collide", len(x.entries), len(x.collided))
	}
	if len(x.nameless) > 0 {
		t.Errorf("%d identities are left", len(x.nameless))
	}
}

// TestEntry_IsSmall: an entry takes at most 48 bytes and an account 144 bytes. There is one entry per object in the
// kernel, a million on a large node.
func TestEntry_IsSmall(t *testing.T) {
	if size := unsafe.Sizeof(entry{}); size > 48 {
		t.Errorf("%d bytes, want at most 48", size)
	}
	if size := unsafe.Sizeof(account{}); size > 144 {
		t.Errorf("an account: %d bytes, want at most 144", size)
	}
}

// TestIndex_LookupAllocatesNothing: a lookup allocates nothing. Every change looks up its objects.
func TestIndex_LookupAllocatesNothing(t *testing.T) {
	var x index
	id := dataplane.ID{Container: "c", Name: "n"}
	indexed(&x, id)
	if n := testing.AllocsPerRun(100, func() { x.get(id) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

package ledger

import (
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane"
)

// TestIndexAgainstAMap plays random changes against one map of identities.
func TestIndexAgainstAMap(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	x, model := newIndex(), map[dataplane.ID]*entry{}
	for step := range 10000 {
		id := dataplane.ID{Container: strconv.Itoa(random.IntN(5)), Name: strconv.Itoa(random.IntN(10))}
		switch random.IntN(3) {
		case 0:
			x.remove(id)
			delete(model, id)
		case 1:
			if e := x.demand(id); model[id] == nil {
				model[id] = e
			}
		}
		if x.get(id) != model[id] || x.count != len(model) {
			t.Fatalf("step %d: entry of %v is %p among %d, want %p among %d", step, id, x.get(id), x.count, model[id], len(model))
		}
	}
	walked := 0
	for id, e := range x.all() {
		if model[id] != e {
			t.Errorf("walked over %v, which is not there", id)
		}
		walked++
		x.remove(id)
	}
	if walked != len(model) || x.count != 0 || len(x.containers) != 0 {
		t.Errorf("walked over %d of %d; %d entries in %d containers are left", walked, len(model), x.count, len(x.containers))
	}
}

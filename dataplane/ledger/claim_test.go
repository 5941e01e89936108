package ledger

import (
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// TestTheStrongestClaimWins plays random claims against a list that is searched
// from end to end.
func TestTheStrongestClaimWins(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var cs claims
	model := map[service.Key]claim{}
	for step := range 20000 {
		key := service.Key{Namespace: "ns", Name: strconv.Itoa(random.IntN(40))}
		if random.IntN(50) == 0 {
			key = service.Node
		}
		if random.IntN(2) == 0 || (step/2000)%2 == 1 && random.IntN(3) > 0 {
			cs.remove(key)
			delete(model, key)
		} else {
			c := claim{key, time.Unix(int64(random.IntN(5)), 0), &dataplane.Object{Body: strconv.Itoa(step)}}
			cs.set(c)
			model[key] = c
		}
		if cs.len() != len(model) {
			t.Fatalf("step %d: %d claims, want %d", step, cs.len(), len(model))
		}
		for key, c := range model {
			if at := cs.of(key); at < 0 || cs.ranked[at] != c {
				t.Fatalf("step %d: the claim of %v is lost", step, key)
			}
			if c.outranks(*cs.winner()) {
				t.Fatalf("step %d: %v wins against %v", step, cs.winner(), c)
			}
		}
	}
}

// TestAClaimIsCheapAmongMany: a chain that all Services share does not make the
// change of one dear (each was a walk over all of them once).
func TestAClaimIsCheapAmongMany(t *testing.T) {
	const many = 50000
	var cs claims
	keys := make([]service.Key, many)
	object := &dataplane.Object{}
	began := time.Now()
	for i := range keys {
		keys[i] = service.Key{Namespace: "ns", Name: strconv.Itoa(i)}
		cs.set(claim{keys[i], time.Unix(int64(many-i), 0), object})
	}
	for _, key := range keys {
		cs.remove(key)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("%d claims came and went in %v", many, took)
	}
	if cs.len() != 0 || cs.winner() != nil {
		t.Errorf("%d claims are left", cs.len())
	}
}

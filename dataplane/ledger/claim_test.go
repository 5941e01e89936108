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
	accounts := []*account{{key: service.Node}}
	for i := range 40 {
		accounts = append(accounts, &account{key: service.Key{Namespace: "ns", Name: strconv.Itoa(i)}})
	}
	var cs claims
	model := map[*account]claim{}
	for step := range 20000 {
		a := accounts[random.IntN(len(accounts))]
		if random.IntN(2) == 0 || (step/2000)%2 == 1 && random.IntN(3) > 0 {
			cs.remove(a)
			delete(model, a)
		} else {
			a.created = time.Unix(int64(random.IntN(5)), 0)
			c := claim{a, &dataplane.Object{Body: strconv.Itoa(step)}}
			cs.set(c)
			model[a] = c
		}
		if cs.len() != len(model) {
			t.Fatalf("step %d: %d claims, want %d", step, cs.len(), len(model))
		}
		if len(model) == 0 && cs.winner() != nil {
			t.Fatalf("step %d: %v wins without a claim", step, cs.winner())
		}
		for a, c := range model {
			if found := cs.of(a); found == nil || *found != c {
				t.Fatalf("step %d: the claim of %v is lost", step, a.key)
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
	accounts := make([]*account, many)
	object := &dataplane.Object{}
	began := time.Now()
	for i := range accounts {
		accounts[i] = &account{key: service.Key{Namespace: "ns", Name: strconv.Itoa(i)}, created: time.Unix(int64(many-i), 0)}
		cs.set(claim{accounts[i], object})
	}
	for _, a := range accounts {
		cs.remove(a)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("%d claims came and went in %v", many, took)
	}
	if cs.len() != 0 || cs.winner() != nil {
		t.Errorf("%d claims are left", cs.len())
	}
}

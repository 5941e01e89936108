package aggregator

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"testing"

	"github.com/sluice-proxy/sluice/service"
)

func keys(count int) []service.Key {
	var ks []service.Key
	for i := range count {
		ks = append(ks, service.Key{Namespace: "ns", Name: fmt.Sprintf("s%05d", i)})
	}
	return ks
}

// account is what carrying out a search has cost and brought.
type account struct {
	refused, landed int
	inForce         map[service.Key]bool
	quarantined     map[service.Key]bool
}

// carry carries a search out against a kernel that refuses the bad keys. Blame returns
// whom the tool names for a refused group.
func carry(t *testing.T, s *search, bad map[service.Key]bool, blame func([]service.Key) []service.Key) account {
	t.Helper()
	a := account{inForce: map[service.Key]bool{}, quarantined: map[service.Key]bool{}}
	for tries := 0; !s.idle(); tries++ {
		if tries > 100_000 {
			t.Fatal("the search does not end")
		}
		group := s.next()
		if group == nil {
			break
		}
		if len(group) > groupMax {
			t.Fatalf("%d tried at once", len(group))
		}
		var culprits []service.Key
		for _, k := range group {
			if bad[k] {
				culprits = append(culprits, k)
			}
		}
		if len(culprits) == 0 {
			a.landed++
			for _, k := range group {
				a.inForce[k] = true
			}
			s.landed()
			continue
		}
		a.refused++
		if culprit, found := s.refused(group, blame(culprits)); found {
			if len(group) != 1 {
				t.Fatalf("%v was quarantined in a group of %d", culprit, len(group))
			}
			a.quarantined[culprit] = true
		}
	}
	return a
}

func nobody([]service.Key) []service.Key             { return nil }
func everybody(culprits []service.Key) []service.Key { return culprits }
func theFirst(culprits []service.Key) []service.Key  { return culprits[:1] }

// Whatever the culprits: the search ends, the innocent are in force, the culprits and
// no other key is quarantined, and for each culprit the refused tries are logarithmic.
func TestTheSearchQuarantinesTheGuiltyAndNobodyElseQuick(t *testing.T) {
	for seed := range uint64(400) {
		random := rand.New(rand.NewPCG(seed, 2))
		ks := keys(1 + random.IntN(3000))
		bad := map[service.Key]bool{}
		for range random.IntN(1 + random.IntN(len(ks))) {
			bad[ks[random.IntN(len(ks))]] = true
		}
		for name, blame := range map[string]func([]service.Key) []service.Key{
			"no blame": nobody, "all blamed": everybody, "one blamed": theFirst,
		} {
			s := &search{}
			var named []service.Key
			if len(bad) > 0 {
				for _, k := range ks {
					if bad[k] {
						named = append(named, k)
					}
				}
				named = blame(named)
			}
			s.suspect(ks, named)
			got := carry(t, s, bad, blame)
			for _, k := range ks {
				if got.quarantined[k] != bad[k] || got.inForce[k] == bad[k] {
					t.Fatalf("seed %d, %s: %v: bad %t, quarantined %t, in force %t",
						seed, name, k, bad[k], got.quarantined[k], got.inForce[k])
				}
			}
			if most := len(bad) * (bits.Len(uint(min(len(ks), groupMax))) + 1); got.refused > most {
				t.Fatalf("seed %d, %s: %d refused tries for %d of %d, want at most %d",
					seed, name, got.refused, len(bad), len(ks), most)
			}
		}
	}
}

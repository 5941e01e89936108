// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"math/rand/v2"
	"testing"
)

// TestSketch_ErrorBounds compares sketches with exact sums, for streams from even to very uneven ones.
func TestSketch_ErrorBounds(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		slots, keys, stream := 1+r.IntN(40), 1+r.IntN(400), 1+r.IntN(5000)
		zipf := rand.NewZipf(r, 1.01+3*r.Float64(), 1, uint64(keys-1))
		s, exact, seen, total := NewSketch[uint64](slots), map[uint64]uint64{}, map[uint64]Carried{}, uint64(0)
		for range stream {
			key := r.Uint64N(uint64(keys))
			if seed%2 == 0 {
				key = zipf.Uint64()
			}
			weight := r.Uint64N(100)
			one := Carried{Open: 1, Counts: Counts{BytesIn: weight}}
			s.Add(key, weight, one)
			if exact[key] += weight; weight > 0 {
				seen[key] = seen[key].Plus(one)
			}
			total += weight
		}
		checkBounds(t, seed, s, exact, seen, total)
		if t.Failed() {
			return
		}
	}
}

func checkBounds(t *testing.T, seed uint64, s *Sketch[uint64], exact map[uint64]uint64, seen map[uint64]Carried, total uint64) {
	t.Helper()
	slots := uint64(s.most)
	ranked, sum := map[uint64]bool{}, uint64(0)
	top := s.Top(s.most)
	for i, k := range top {
		ranked[k.Key] = true
		sum += k.Sum
		if truth := exact[k.Key]; k.Sum < truth || k.Sum-k.Error > truth || k.Error > total/slots {
			t.Errorf("seed %d: %+v, true %d, of %d in %d slots", seed, k, truth, total, slots)
		}
		if k.Error == 0 && k.Seen != seen[k.Key] || k.Seen.BytesIn != k.Sum-k.Error {
			t.Errorf("seed %d: %+v, true %+v", seed, k, seen[k.Key])
		}
		if i > 0 && top[i-1].Sum < k.Sum {
			t.Errorf("seed %d: %+v before %+v", seed, top[i-1], k)
		}
	}
	if sum != total || len(ranked) != len(top) || len(top) > s.most {
		t.Errorf("seed %d: %d of %d in %d different slots of %d", seed, sum, total, len(ranked), len(top))
	}
	for key, truth := range exact {
		if truth > total/slots && !ranked[key] {
			t.Errorf("seed %d: %d has %d of %d and no slot of %d", seed, key, truth, total, slots)
		}
	}
	if few := s.Top(1); len(few) > 1 || len(top) > 0 && few[0] != top[0] {
		t.Errorf("seed %d: %+v", seed, few)
	}
}

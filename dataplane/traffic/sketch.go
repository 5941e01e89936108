// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"cmp"
	"slices"
)

// Sketch finds the keys with the largest sums of a stream in bounded memory, with the algorithm Space-Saving
// (Metwally, Agrawal, El Abbadi: Efficient Computation of Frequent and Top-k Elements in Data Streams, 2005).
// Each of its slots counts for one key. If no slot is free, a new key takes the slot with the smallest sum,
// and inherits that sum, which is then its largest possible error.
//
// With n slots and a total W of all weights, Sum-Error <= true sum <= Sum and Error <= W/n for each ranked
// key, and each key with a true sum above W/n is ranked. Everything is exact for up to n keys.
//
// A sketch belongs to one goroutine.
type Sketch[K comparable] struct {
	most int
	// slots are a heap: none has a smaller sum than its parent.
	slots []Ranked[K]
	at    map[K]int
}

// Ranked is a key of a sketch.
type Ranked[K comparable] struct {
	Key K
	// Sum is at least the true sum, and at most Error above it.
	Sum, Error uint64
	// Seen is what was added to the key since it had its slot: everything if Error is 0.
	Seen Carried
}

// NewSketch returns a sketch with a number of slots, at least 1.
func NewSketch[K comparable](slots int) *Sketch[K] {
	return &Sketch[K]{most: slots, at: map[K]int{}}
}

// Add adds a weight to the sum of a key, and the traffic that belongs to the weight. A weight of 0 has no effect.
func (s *Sketch[K]) Add(key K, weight uint64, seen Carried) {
	if weight == 0 {
		return
	}
	i, known := s.at[key]
	switch {
	case known:
	case len(s.slots) < s.most:
		i = s.rise(len(s.slots), Ranked[K]{Key: key})
	default:
		i = 0
		delete(s.at, s.slots[0].Key)
		s.at[key] = 0
		s.slots[0] = Ranked[K]{Key: key, Sum: s.slots[0].Sum, Error: s.slots[0].Sum}
	}
	s.slots[i].Sum += weight
	s.slots[i].Seen = s.slots[i].Seen.Plus(seen)
	s.sink(i)
}

// rise puts a slot with a sum of 0 into the heap, whose parents it passes, and returns its place.
func (s *Sketch[K]) rise(i int, slot Ranked[K]) int {
	s.slots = append(s.slots, slot)
	for ; i > 0 && s.slots[(i-1)/2].Sum > 0; i = (i - 1) / 2 {
		s.put(i, s.slots[(i-1)/2])
	}
	s.put(i, slot)
	return i
}

// sink moves a slot whose sum has grown below all smaller ones.
func (s *Sketch[K]) sink(i int) {
	slot := s.slots[i]
	for {
		child := 2*i + 1
		if child+1 < len(s.slots) && s.slots[child+1].Sum < s.slots[child].Sum {
			child++
		}
		if child >= len(s.slots) || s.slots[child].Sum >= slot.Sum {
			break
		}
		s.put(i, s.slots[child])
		i = child
	}
	s.put(i, slot)
}

func (s *Sketch[K]) put(i int, slot Ranked[K]) {
	s.slots[i] = slot
	s.at[slot.Key] = i
}

// Top returns the keys with the largest sums, the largest first, but no more than most keys.
func (s *Sketch[K]) Top(most int) []Ranked[K] {
	all := slices.Clone(s.slots)
	slices.SortStableFunc(all, func(a, b Ranked[K]) int { return cmp.Compare(b.Sum, a.Sum) })
	return slices.Clip(all[:min(most, len(all))])
}

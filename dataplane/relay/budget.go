package relay

import (
	"sync"
	"sync/atomic"
)

// Budget bounds a number. Any goroutine may use it.
//
// Invariant: 0 ≤ used ≤ most, and what is taken here is also taken from the budget above.
type Budget struct {
	most  int64
	used  atomic.Int64
	above *Budget
	// tables are the session tables of listeners that have asked for one, as keys.
	tables sync.Map
}

// NewBudget returns a budget that is part of the one above, which may be nil.
func NewBudget(most int, above *Budget) *Budget { return &Budget{most: int64(most), above: above} }

// Most returns the bound, and Used how much is taken.
func (b *Budget) Most() int { return int(b.most) }

// Used is the other half of Most.
func (b *Budget) Used() int { return int(b.used.Load()) }

// Take takes one, and reports false if that would be one too many here or above.
func (b *Budget) Take() bool {
	for {
		used := b.used.Load()
		if used >= b.most {
			return false
		}
		if b.used.CompareAndSwap(used, used+1) {
			break
		}
	}
	if b.above == nil || b.above.Take() {
		return true
	}
	b.used.Add(-1)
	return false
}

// refusal names the bound that a client has met.
func (b *Budget) refusal() Refusal {
	if b.used.Load() >= b.most {
		return PartFull
	}
	return TotalFull
}

// leastActive returns the session whose last datagram is the oldest of those that have taken one
// here, nil if there is none. It walks over all of them, whose number is bounded, and is called
// only at the bound.
func (b *Budget) leastActive() (least *session) {
	b.tables.Range(func(t, _ any) bool {
		least = t.(*sessionTable).leastActive(b, least)
		return true
	})
	return least
}

// Give returns one to the pool.
func (b *Budget) Give() {
	b.used.Add(-1)
	if b.above != nil {
		b.above.Give()
	}
}

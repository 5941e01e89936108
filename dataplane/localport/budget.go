package localport

import "sync/atomic"

// budget bounds how many of something there are. Any goroutine may use it.
//
// Invariant: 0 ≤ used ≤ most, and what is taken here is taken above, too.
type budget struct {
	most  int64
	used  atomic.Int64
	above *budget
}

// newBudget makes a budget that is part of the one above, which may be nil.
func newBudget(most int, above *budget) *budget { return &budget{most: int64(most), above: above} }

// take takes one, unless that would be one too many here or above.
func (b *budget) take() bool {
	for {
		used := b.used.Load()
		if used >= b.most {
			return false
		}
		if b.used.CompareAndSwap(used, used+1) {
			break
		}
	}
	if b.above == nil || b.above.take() {
		return true
	}
	b.used.Add(-1)
	return false
}

// give gives one back.
func (b *budget) give() {
	b.used.Add(-1)
	if b.above != nil {
		b.above.give()
	}
}

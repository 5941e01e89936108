// SPDX-License-Identifier: Apache-2.0

package relay

import "container/heap"

// ranking is a heap of the budgets that have slots, the one with the most slots first.
type ranking []*Budget

// update restores the order after the number of a budget's slots changed.
func (r *ranking) update(b *Budget) {
	known := b.rank < len(*r) && (*r)[b.rank] == b
	switch {
	case !known:
		heap.Push(r, b)
	case b.used == 0:
		heap.Remove(r, b.rank)
	default:
		heap.Fix(r, b.rank)
	}
}

// Len implements heap.Interface, as do the others.
func (r ranking) Len() int { return len(r) }
func (r ranking) Less(i, j int) bool {
	r[i].pool.steps++
	return r[i].used > r[j].used
}
func (r ranking) Swap(i, j int) {
	r[i], r[j] = r[j], r[i]
	r[i].rank, r[j].rank = i, j
}
func (r *ranking) Push(b any) {
	b.(*Budget).rank = len(*r)
	*r = append(*r, b.(*Budget))
}
func (r *ranking) Pop() any {
	last := (*r)[len(*r)-1]
	(*r)[len(*r)-1] = nil
	*r = (*r)[:len(*r)-1]
	return last
}

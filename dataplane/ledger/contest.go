package ledger

import "slices"

// contest ranks several claims for one object. A chain that all Services share
// has as many as there are Services, so every operation is at most logarithmic in
// their number.
//
// Invariant: ranked is a heap in which nobody is outranked by what is below, so
// that the first is the winner. Beyond scanMax, places says where each account's
// claim is.
type contest struct {
	ranked []claim
	places map[*account]int
}

// scanMax is the number of claims that are searched without an index.
const scanMax = 8

// of gives the place of an account's claim, -1 when it has none.
func (k *contest) of(a *account) int {
	if k.places != nil {
		if at, ok := k.places[a]; ok {
			return at
		}
		return -1
	}
	return slices.IndexFunc(k.ranked, func(c claim) bool { return c.by == a })
}

// set makes c the wish of its account.
func (k *contest) set(c claim) {
	if at := k.of(c.by); at >= 0 {
		k.ranked[at] = c
		k.settle(at)
		return
	}
	k.ranked = append(k.ranked, c)
	if k.places == nil && len(k.ranked) > scanMax {
		k.places = make(map[*account]int, len(k.ranked))
		for at := range k.ranked {
			k.moved(at)
		}
	}
	k.moved(len(k.ranked) - 1)
	k.settle(len(k.ranked) - 1)
}

// remove withdraws the wish of an account.
func (k *contest) remove(a *account) {
	at := k.of(a)
	if at < 0 {
		return
	}
	last := len(k.ranked) - 1
	k.swap(at, last)
	k.ranked[last] = claim{}
	k.ranked = k.ranked[:last]
	delete(k.places, a)
	if at < last {
		k.settle(at)
	}
	if last <= scanMax/2 {
		k.places = nil
	}
}

// settle moves the claim at a place to where its rank belongs.
func (k *contest) settle(at int) {
	for at > 0 && k.ranked[at].outranks(k.ranked[(at-1)/2]) {
		k.swap(at, (at-1)/2)
		at = (at - 1) / 2
	}
	for {
		best := at
		for child := 2*at + 1; child <= 2*at+2 && child < len(k.ranked); child++ {
			if k.ranked[child].outranks(k.ranked[best]) {
				best = child
			}
		}
		if best == at {
			return
		}
		k.swap(at, best)
		at = best
	}
}

func (k *contest) swap(a, b int) {
	k.ranked[a], k.ranked[b] = k.ranked[b], k.ranked[a]
	k.moved(a)
	k.moved(b)
}

// moved takes down who is at a place now.
func (k *contest) moved(at int) {
	if k.places != nil {
		k.places[k.ranked[at].by] = at
	}
}

package ledger

import (
	"slices"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// claim is one Service's request for one object. There is one for every object of every
// Service, so it refers to its account by a pointer.
type claim struct {
	by     *account
	object *dataplane.Object
}

// outranks reports whether c wins against other: the scaffold first, then the
// older Service, then the smaller key. What a held Service has given up has the rank of the youngest:
// the API may have given it to another. At an object that Services share, such as a chain
// of node facts, a fragment wins against what was found in the kernel: another program may
// have damaged that.
func (c claim) outranks(other claim) bool {
	a, b := c.by, other.by
	if node := a.key == service.Node; node != (b.key == service.Node) {
		return node
	}
	if a.left != b.left && c.object.Kind == dataplane.Owned {
		return b.left
	}
	if by := c.created().Compare(other.created()); by != 0 {
		return by < 0
	}
	return a.key.Compare(b.key) < 0
}

// created is the age that ranks the claim.
func (c claim) created() time.Time {
	if c.by.gaveUp(c.object) {
		return youngest
	}
	return c.by.created
}

// claims are the claims for one object. Nearly always there is exactly one, sole; two or
// more make a contest.
//
// Invariant: a contest has at least two claims, and sole is zero then. Once the last
// claim is withdrawn, sole keeps its account, without an object: the removal belongs to
// that account.
type claims struct {
	sole    claim
	contest *contest
}

func (cs *claims) len() int {
	switch {
	case cs.contest != nil:
		return len(cs.contest.ranked)
	case cs.sole.object != nil:
		return 1
	default:
		return 0
	}
}

// winner returns nil if there is no claim.
func (cs *claims) winner() *claim {
	switch {
	case cs.contest != nil:
		return &cs.contest.ranked[0]
	case cs.sole.object != nil:
		return &cs.sole
	default:
		return nil
	}
}

// last returns the account that withdrew the last claim; nil if there is a claim, or
// never was one.
func (cs *claims) last() *account {
	if cs.contest == nil && cs.sole.object == nil {
		return cs.sole.by
	}
	return nil
}

// of returns the claim of an account, nil if it has none.
func (cs *claims) of(a *account) *claim {
	if cs.contest != nil {
		if at := cs.contest.of(a); at >= 0 {
			return &cs.contest.ranked[at]
		}
		return nil
	}
	if a != nil && cs.sole.by == a && cs.sole.object != nil {
		return &cs.sole
	}
	return nil
}

// other returns a claim of another account, the winner if that has it; nil if there is none.
func (cs *claims) other(a *account) *claim {
	winner := cs.winner()
	switch {
	case winner == nil || winner.by != a:
		return winner
	case cs.contest != nil:
		return &cs.contest.ranked[1]
	default:
		return nil
	}
}

// set makes c the claim of its account, whose rank may have changed.
func (cs *claims) set(c claim) {
	switch {
	case cs.contest != nil:
		cs.contest.set(c)
	case cs.sole.object == nil || cs.sole.by == c.by:
		cs.sole = c
	default:
		cs.contest = &contest{}
		cs.contest.set(cs.sole)
		cs.contest.set(c)
		cs.sole = claim{}
	}
}

// remove withdraws the claim of an account.
func (cs *claims) remove(a *account) {
	if cs.contest == nil {
		if cs.sole.by == a {
			cs.sole.object = nil
		}
		return
	}
	cs.contest.remove(a)
	if len(cs.contest.ranked) == 1 {
		cs.sole, cs.contest = cs.contest.ranked[0], nil
	}
}

// contest ranks several claims for one object. A chain that all Services share has as
// many claims as there are Services, so every operation is at most logarithmic in their
// number.
//
// Invariant: ranked is a heap with the winner first. If it is longer than scanMax, or
// was recently, places has the position of each account's claim.
type contest struct {
	ranked []claim
	places map[*account]int
}

// scanMax is the number of claims that are searched without an index.
const scanMax = 8

// of returns the position of an account's claim, -1 if it has none.
func (k *contest) of(a *account) int {
	if k.places != nil {
		if at, ok := k.places[a]; ok {
			return at
		}
		return -1
	}
	return slices.IndexFunc(k.ranked, func(c claim) bool { return c.by == a })
}

// set makes c the claim of its account.
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

// remove withdraws the claim of an account.
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

// settle moves the claim at a position to where it belongs by its rank.
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

// moved notes which claim is at a position now.
func (k *contest) moved(at int) {
	if k.places != nil {
		k.places[k.ranked[at].by] = at
	}
}

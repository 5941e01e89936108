package ledger

import (
	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// claim is one Service's wish for one object. There is one for every object of
// every Service, so it says whose it is by reference.
type claim struct {
	by     *account
	object *dataplane.Object
}

// outranks reports whether c wins against other: the scaffold first, then the
// older Service, then the smaller key.
func (c claim) outranks(other claim) bool {
	a, b := c.by, other.by
	if node := a.key == service.Node; node != (b.key == service.Node) {
		return node
	}
	if by := a.created.Compare(b.created); by != 0 {
		return by < 0
	}
	return a.key.Compare(b.key) < 0
}

// claims are the wishes for one object. Nearly always there is exactly one, which
// has its place here; two or more make a contest.
//
// Invariant: a contest holds at least two claims, and sole is zero then. Once the
// last claim is withdrawn, sole names who made it, without an object: the removal is
// that account's business, and nobody else's.
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

// winner is nil when there is no claim.
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

// last gives the account that withdrew the last claim; nil while there is a claim,
// and where there has never been one.
func (cs *claims) last() *account {
	if cs.contest == nil && cs.sole.object == nil {
		return cs.sole.by
	}
	return nil
}

// of gives the claim of an account, nil when it has none.
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

// set makes c the wish of its account, whose rank may have changed.
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

// remove withdraws the wish of an account.
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

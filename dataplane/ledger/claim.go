package ledger

import (
	"slices"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// claim is one Service's wish for one object.
type claim struct {
	key     service.Key
	created time.Time
	object  *dataplane.Object
}

// outranks tells whether c wins against other: the scaffold first, then the
// older Service, then the smaller key.
func (c claim) outranks(other claim) bool {
	if node := c.key == service.Node; node != (other.key == service.Node) {
		return node
	}
	if by := c.created.Compare(other.created); by != 0 {
		return by < 0
	}
	return c.key.Compare(other.key) < 0
}

// claims are the wishes for one object. Nearly always there is exactly one; a
// chain that many Services share has as many as there are Services, so that
// every operation is at most logarithmic in their number.
//
// Invariant: ranked is a heap in which nobody is outranked by what is below, so
// that the first is the winner. Beyond scanMax, places says where each key is.
type claims struct {
	ranked []claim
	places map[service.Key]int
}

// scanMax is the number of claims that are searched without an index.
const scanMax = 8

func (cs *claims) len() int { return len(cs.ranked) }

func (cs *claims) winner() *claim {
	if len(cs.ranked) == 0 {
		return nil
	}
	return &cs.ranked[0]
}

// of gives a key's place, -1 when it has no claim.
func (cs *claims) of(key service.Key) int {
	if cs.places != nil {
		if at, ok := cs.places[key]; ok {
			return at
		}
		return -1
	}
	return slices.IndexFunc(cs.ranked, func(c claim) bool { return c.key == key })
}

// set makes c the wish of its key.
func (cs *claims) set(c claim) {
	if at := cs.of(c.key); at >= 0 {
		cs.ranked[at] = c
		cs.settle(at)
		return
	}
	cs.ranked = append(cs.ranked, c)
	if cs.places == nil && len(cs.ranked) > scanMax {
		cs.places = make(map[service.Key]int, len(cs.ranked))
		for at := range cs.ranked {
			cs.moved(at)
		}
	}
	cs.moved(len(cs.ranked) - 1)
	cs.settle(len(cs.ranked) - 1)
}

// remove withdraws the wish of a key.
func (cs *claims) remove(key service.Key) {
	at := cs.of(key)
	if at < 0 {
		return
	}
	last := len(cs.ranked) - 1
	cs.swap(at, last)
	cs.ranked[last] = claim{}
	cs.ranked = cs.ranked[:last]
	delete(cs.places, key)
	if at < last {
		cs.settle(at)
	}
	if last <= scanMax/2 {
		cs.places = nil
	}
}

// settle moves the claim at a place to where its rank belongs.
func (cs *claims) settle(at int) {
	for at > 0 && cs.ranked[at].outranks(cs.ranked[(at-1)/2]) {
		cs.swap(at, (at-1)/2)
		at = (at - 1) / 2
	}
	for {
		best := at
		for child := 2*at + 1; child <= 2*at+2 && child < len(cs.ranked); child++ {
			if cs.ranked[child].outranks(cs.ranked[best]) {
				best = child
			}
		}
		if best == at {
			return
		}
		cs.swap(at, best)
		at = best
	}
}

func (cs *claims) swap(a, b int) {
	cs.ranked[a], cs.ranked[b] = cs.ranked[b], cs.ranked[a]
	cs.moved(a)
	cs.moved(b)
}

// moved takes down who is at a place now.
func (cs *claims) moved(at int) {
	if cs.places != nil {
		cs.places[cs.ranked[at].key] = at
	}
}

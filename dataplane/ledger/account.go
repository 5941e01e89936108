package ledger

import (
	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// Account is what the ledger records of one key, for people. It is a copy.
type Account struct {
	// Known is false if the ledger has no record of the key.
	Known bool
	// Latest is the newest revision received, and Applied the last one that was fully in
	// the kernel; zero for none.
	Latest, Applied service.Revision
	// Pending says that Latest is on its way, and Held that it is held back.
	Pending, Held bool
	// Queued says that a newer fragment waits to be received.
	Queued bool
	// Objects are some of those wanted now; Omitted counts those after them.
	Objects []Holding
	Omitted int
	// folded is the fragment of the objects.
	folded *dataplane.Fragment
}

// Append adds the objects of a later answer about the same key. It reports false, and
// changes nothing, if what the key wants has changed in between.
func (r *Account) Append(next *Account) bool {
	if next.folded != r.folded {
		return false
	}
	r.Objects, r.Omitted = append(r.Objects, next.Objects...), next.Omitted
	return true
}

// Holding is one object that a key wants.
type Holding struct {
	Object *dataplane.Object
	// Frontend is the one that the object is for; zero for none.
	Frontend dataplane.Frontend
	// By is another key that has the object instead; zero if the key has it.
	By service.Key
	// Differs says that the object is not, or not certainly, in the kernel as wanted.
	Differs bool
}

// Account returns what is recorded of a key, with up to limit objects from a position on.
func (l *Ledger) Account(key service.Key, from, limit int) (r Account) {
	a := l.accounts[key]
	if a == nil {
		return r
	}
	r.Known, r.Pending, r.Held, r.folded = true, a.pending != nil, a.held, a.folded
	if a.latest != nil {
		r.Latest = a.latest.Revision
	}
	if a.applied != nil {
		r.Applied = a.applied.Revision
	}
	objects := objectsOf(a.folded)
	objects = objects[min(from, len(objects)):]
	listed := min(limit, len(objects))
	r.Omitted = len(objects) - listed
	r.Objects = make([]Holding, 0, listed)
	for i := range objects[:listed] {
		l.steps++
		r.Objects = append(r.Objects, l.holding(a, &objects[i]))
	}
	return r
}

func (l *Ledger) holding(a *account, object *dataplane.Object) Holding {
	h := Holding{Object: object}
	h.Frontend, _ = l.naming.Frontend(object.ID)
	e := l.entries.get(object.ID)
	switch {
	case e == nil || e.claims.of(a) == nil: // yielded: it goes with something lost
		if e != nil && e.claims.winner() != nil {
			h.By = e.claims.winner().by.key
		}
		h.Differs = true
	case e.claims.winner().by != a:
		h.By = e.claims.winner().by.key
		h.Differs = e.claims.winner().object.Body != object.Body
	case l.layout != nil && object.Kind == dataplane.Element:
		h.Differs = !l.reached(object.ID)
	default:
		h.Differs = e.dirty
	}
	return h
}

// Shadowed returns up to limit keys that lost a frontend to another key, in no order.
func (l *Ledger) Shadowed(limit int) (keys []service.Key) {
	seen := map[service.Key]bool{}
	steps := 0
	for key, state := range l.shadows.states {
		if steps++; steps > limit {
			break
		}
		if state.objects > 0 && !seen[key.loser] {
			seen[key.loser] = true
			keys = append(keys, key.loser)
		}
	}
	return keys
}

// Batches counts the batches planned, those without a change included.
func (l *Ledger) Batches() uint64 { return l.batches }

// SPDX-License-Identifier: Apache-2.0

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
	Frontend service.Frontend
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
	r.Known, r.Pending, r.Held, r.folded = true, a.pending != nil, a.stance == held, a.folded
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
	t := l.frontends.tenures[h.Frontend]
	switch {
	case h.Frontend != service.Frontend{} && t.by != nil && t.by != a:
		h.By, h.Differs = t.by.key, true
	case e == nil:
		h.Differs = true
	case l.layout != nil && object.Kind == dataplane.Element:
		h.Differs = !dataplane.Same(e.claims.winner().object, object) || !l.reached(object.ID)
	default:
		h.Differs = e.dirty || !dataplane.Same(e.wanted, object)
	}
	return h
}

// Whole reports whether the kernel has, as wanted, every object that a key wants now.
func (l *Ledger) Whole(key service.Key) bool {
	a := l.accounts[key]
	return a == nil || l.stands(a, l.layout != nil)
}

// Served calls each for every Service that wants an object.
func (l *Ledger) Served(each func(service.Key)) {
	for key, a := range l.accounts {
		if key != service.Node && len(objectsOf(a.folded)) > 0 {
			each(key)
		}
	}
}

// Batches counts the planned batches that have changes.
func (l *Ledger) Batches() uint64 { return l.batches }

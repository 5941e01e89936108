// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"slices"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// A fragment that was composed from the kernel state (Adopt, Freeze, Hold) claims elements only. Others may want the
// chains and sets that these lead to. It retains them: an object that is retained and not claimed stays as the kernel has
// it, and retains what it leads to. So no object is removed while a kept element leads there, and none returns to the
// state before others claimed it.

// retention says why an entry is retained. Few entries have one.
type retention struct {
	// references counts the fragments that retain the entry, and the references of entries that stay.
	references int
	// stays is set if the entry is wanted for that reason alone.
	stays bool
	// former is the object that a fragment found. It is restored if another program deleted it since.
	former *dataplane.Object
}

// retains reports whether the present fragment of an account was composed from the kernel state.
func (a *account) retains() bool {
	return a.keeps() && a.folded != nil && a.folded.Revision == service.Revision{}
}

// claimed returns the objects that the present fragment of an account claims.
func (a *account) claimed() []dataplane.Object {
	objects := objectsOf(a.folded)
	if a.retains() {
		return slices.DeleteFunc(slices.Clone(objects), func(o dataplane.Object) bool { return o.Kind == dataplane.Owned })
	}
	return objects
}

// retain counts what a fragment retains: n is 1 or -1.
func (l *Ledger) retain(a *account, objects []dataplane.Object, n int) {
	for i := range objects {
		if objects[i].Kind == dataplane.Owned {
			l.hold(a, objects[i].ID, &objects[i], n)
		}
	}
}

// refer counts what an entry retains that stays as an object.
func (l *Ledger) refer(a *account, o *dataplane.Object, n int) {
	for _, ref := range refsOf(o, l.origin) {
		l.hold(a, ref, nil, n)
	}
}

func (l *Ledger) hold(a *account, id dataplane.ID, former *dataplane.Object, n int) {
	l.steps++
	e := l.entries.demand(id)
	r := l.retained[e]
	r.references += n
	if r.former == nil {
		r.former = former
	}
	l.retained[e] = r
	object := e.wanted
	if r.stays {
		object = nil
	}
	if object == nil && (r.references == 0 || e.claims.sole.by == nil) {
		e.claims.sole.by = a // who removes it, or will
	}
	l.decide(id, e, object)
}

// decide makes an object wanted that is claimed or composed. Without such an object, a retained entry stays.
func (l *Ledger) decide(id dataplane.ID, e *entry, object *dataplane.Object) {
	was, r := e.wanted, l.retained[e]
	stayed := r.stays
	switch {
	case object != nil || r.references == 0:
		e.wanted, r.stays = object, false
	case !stayed:
		if e.wanted = e.known; e.known == nil {
			e.wanted = r.former
		}
		r.stays = e.wanted != nil
	}
	if r.references > 0 {
		l.retained[e] = r
	} else {
		delete(l.retained, e)
	}
	l.touch(id, e)
	switch {
	case r.stays && !stayed:
		l.refer(e.claims.sole.by, e.wanted, 1)
	case stayed && !r.stays:
		l.refer(e.claims.sole.by, was, -1)
	}
}

package ledger

import (
	"iter"
	"slices"
	"strings"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// entry is the record of one object. There is one per object in the kernel, so it is
// small.
//
// Invariant: dirty is set exactly when the entry differs().
type entry struct {
	// claims are empty for objects composed by the layout.
	claims claims
	// wanted is what should be in the kernel; nil for nothing, and for elements that
	// the layout folds into composed objects.
	wanted *dataplane.Object
	// known is what is known to be in the kernel; nil for nothing.
	known *dataplane.Object
	// unsure is set if known may be wrong.
	unsure bool
	// dirty and listed belong to dirtyList, seen to Observe, which resets it.
	dirty, listed, seen bool
}

// owner returns the Service of the object: the winner, or the account that wanted it
// last. It is service.Node for composed objects, and for objects that no Service has
// wanted since the process started.
func (e *entry) owner() service.Key {
	if winner := e.claims.winner(); winner != nil {
		return winner.by.key
	}
	if last := e.claims.last(); last != nil {
		return last.key
	}
	return service.Node
}

func (e *entry) differs() bool {
	return e.unsure || !dataplane.Same(e.wanted, e.known)
}

// idle reports whether the entry can be removed.
func (e *entry) idle() bool {
	return e.claims.len() == 0 && e.wanted == nil && e.known == nil && !e.unsure
}

// index finds the entry of an identity. There are few containers and many names, so
// each container has its own map: a name takes half the memory of an identity, and the
// maps do not all double at once.
//
// The texts of identities are copied. A renderer may have cut them from one text of a
// fragment, which an entry that outlives the fragment would keep in memory.
//
// Invariant: every container has entries; count is the number of entries.
type index struct {
	containers map[string]map[string]*entry
	count      int
}

func newIndex() index { return index{containers: map[string]map[string]*entry{}} }

// get returns nil if there is no entry.
func (x *index) get(id dataplane.ID) *entry { return x.containers[id.Container][id.Name] }

// demand returns the entry of an identity. It adds one if there is none.
func (x *index) demand(id dataplane.ID) *entry {
	names := x.containers[id.Container]
	if e := names[id.Name]; e != nil {
		return e
	}
	if names == nil {
		names = map[string]*entry{}
		x.containers[strings.Clone(id.Container)] = names
	}
	e := &entry{}
	names[strings.Clone(id.Name)] = e
	x.count++
	return e
}

// remove removes an entry, if there is one.
func (x *index) remove(id dataplane.ID) {
	names := x.containers[id.Container]
	if names[id.Name] == nil {
		return
	}
	delete(names, id.Name)
	x.count--
	if len(names) == 0 {
		delete(x.containers, id.Container)
	}
}

// all walks over the entries in no order. The present entry may be removed.
func (x *index) all() iter.Seq2[dataplane.ID, *entry] {
	return func(yield func(dataplane.ID, *entry) bool) {
		for container, names := range x.containers {
			for name, e := range names {
				if !yield(dataplane.ID{Container: container, Name: name}, e) {
					return
				}
			}
		}
	}
}

// dirtyList finds the entries that differ without walking over all of them and without
// a look-up for each. An entry that no longer differs stays listed until sorted.
//
// Invariant: every dirty entry is listed, no entry twice; count is the number of
// dirty entries.
type dirtyList struct {
	listed []listing
	count  int
}

// listing is an entry with its identity, which an entry does not have if nothing is
// wanted or known of it.
type listing struct {
	id    dataplane.ID
	entry *entry
}

// note updates the list after a change of an entry.
func (d *dirtyList) note(id dataplane.ID, e *entry) {
	differs := e.differs()
	switch {
	case differs && !e.dirty:
		d.count++
	case !differs && e.dirty:
		d.count--
	}
	e.dirty = differs
	if differs && !e.listed {
		e.listed = true
		if len(d.listed) == cap(d.listed) {
			// Double each time: append alone grows in small steps, and would leave
			// several times as much garbage when a node starts.
			d.listed = slices.Grow(d.listed, max(len(d.listed), 16))
		}
		d.listed = append(d.listed, listing{id, e})
	}
}

// sorted returns what is dirty, in the order of identities. The result is valid until
// the next call of another method.
func (d *dirtyList) sorted() []listing {
	d.listed = slices.DeleteFunc(d.listed, func(l listing) bool {
		l.entry.listed = l.entry.dirty
		return !l.entry.dirty
	})
	slices.SortFunc(d.listed, func(a, b listing) int { return a.id.Compare(b.id) })
	return d.listed
}

// reset empties the list if nothing is dirty. It frees the memory of a large batch.
func (d *dirtyList) reset() {
	const keepMax = 1024
	if d.count > 0 {
		return
	}
	for _, l := range d.listed {
		l.entry.listed = false
	}
	clear(d.listed)
	d.listed = d.listed[:0]
	if cap(d.listed) > keepMax {
		d.listed = nil
	}
}

package ledger

import (
	"slices"

	"github.com/sluice-proxy/sluice/dataplane"
)

// dirtyList finds the entries that differ without a walk over all of them, and
// without a look-up for each. An entry that stops to differ stays listed until
// somebody looks.
//
// Invariant: every dirty entry is listed, no entry twice; count is the number of
// dirty entries.
type dirtyList struct {
	listed []listing
	count  int
}

// listing is an entry with its identity, which it does not know by itself when
// nothing is wanted or known of it.
type listing struct {
	id    dataplane.ID
	entry *entry
}

// note keeps the list true to an entry that may have changed.
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
			// Twice the room each time: append alone would go in small steps,
			// and leave several times as much behind when a node starts.
			d.listed = slices.Grow(d.listed, max(len(d.listed), 16))
		}
		d.listed = append(d.listed, listing{id, e})
	}
}

// sorted gives what is dirty, in the order of identities. The result is valid
// until the next call of another method.
func (d *dirtyList) sorted() []listing {
	d.listed = slices.DeleteFunc(d.listed, func(l listing) bool {
		l.entry.listed = l.entry.dirty
		return !l.entry.dirty
	})
	slices.SortFunc(d.listed, func(a, b listing) int { return a.id.Compare(b.id) })
	return d.listed
}

// reset forgets what is listed if nothing is dirty. The room of a large batch is
// given back.
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

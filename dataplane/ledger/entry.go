// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"slices"

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

// object returns an object with the identity of the entry; nil if nothing is wanted or
// known of it.
func (e *entry) object() *dataplane.Object {
	if e.wanted != nil {
		return e.wanted
	}
	if e.known != nil {
		return e.known
	}
	if winner := e.claims.winner(); winner != nil {
		return winner.object
	}
	return nil
}

// owner returns the Service of the object: the one that brought what is wanted, or that wanted it last.
// It is service.Node for composed objects, and for those that no Service has wanted since the process
// started.
func (e *entry) owner() service.Key {
	by := e.claims.last()
	if winner := e.claims.winner(); winner != nil {
		if by = winner.by; by == nil {
			by = e.claims.shared.last
		}
	}
	if by == nil {
		return service.Node
	}
	return by.key
}

func (e *entry) differs() bool {
	return e.unsure || !dataplane.Same(e.wanted, e.known)
}

// idle reports whether the entry can be removed.
func (e *entry) idle() bool {
	return e.claims.len() == 0 && e.wanted == nil && e.known == nil && !e.unsure
}

// dirtyList finds the entries that differ without walking over all of them and without a lookup for each. An entry that
// no longer differs stays listed until dirty or reset.
//
// Invariant: every dirty entry is listed, no entry twice; count is the number of
// dirty entries.
type dirtyList struct {
	listed []*entry
	count  int
}

// note updates the list after a change of an entry.
func (d *dirtyList) note(e *entry) {
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
		d.listed = append(d.listed, e)
	}
}

// dirty returns what is dirty. The result is valid until the next call of another method.
func (d *dirtyList) dirty() []*entry {
	d.listed = slices.DeleteFunc(d.listed, func(e *entry) bool {
		e.listed = e.dirty
		return !e.dirty
	})
	return d.listed
}

// reset empties the list if nothing is dirty. It frees the memory of a large batch.
func (d *dirtyList) reset() {
	const keepMax = 1024
	if d.count > 0 {
		return
	}
	for _, e := range d.listed {
		e.listed = false
	}
	clear(d.listed)
	d.listed = d.listed[:0]
	if cap(d.listed) > keepMax {
		d.listed = nil
	}
}

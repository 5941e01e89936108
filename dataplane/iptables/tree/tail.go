// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"slices"
	"strings"

	"github.com/sluice-proxy/sluice/dataplane"
)

// A tail rule that jumps to the root of another container of the layout exists only while that root
// has rules: every packet that no element matches pays for a tail rule, and some tail rules look up a
// route.

// idle reports whether a tail rule jumps only to empty roots.
func (t *tree) idle(e *element) bool {
	return len(e.object.Refs()) > 0 && !slices.ContainsFunc(e.object.Refs(), func(id dataplane.ID) bool {
		target := t.roots[id]
		return target == nil || !target.vacant
	})
}

// settleTails updates vacant, and marks the trees dirty whose tail rules are added or removed as a
// result. It terminates because tail rules form no loops, which the kernel would reject.
func (l *Layout) settleTails() {
	for settled := false; !settled; {
		settled = true
		for _, t := range l.order {
			vacant := t.trie.root == nil && !slices.ContainsFunc(t.tail, func(e *element) bool { return !t.idle(e) })
			if vacant == t.vacant {
				continue
			}
			t.vacant, settled = vacant, false
			for _, from := range l.leadingTo(t) {
				from.dirty = true
			}
		}
	}
}

// leadingTo returns the trees with a tail rule that jumps to the root of t.
func (l *Layout) leadingTo(t *tree) []*tree {
	var from []*tree
	for _, other := range l.order {
		if slices.ContainsFunc(other.tail, func(e *element) bool { return slices.Contains(e.object.Refs(), t.root.id) }) {
			from = append(from, other)
		}
	}
	return from
}

// above returns the roots from which tail rules lead to a tree, directly or through other roots.
func (l *Layout) above(t *tree) []dataplane.ID {
	var path []dataplane.ID
	for _, from := range l.leadingTo(t) {
		path = append(append(path, l.above(from)...), from.root.id)
	}
	return path
}

func (t *tree) searchTail(name string) (int, bool) {
	return slices.BinarySearchFunc(t.tail, name, func(e *element, name string) int {
		return strings.Compare(e.object.ID.Name, name)
	})
}

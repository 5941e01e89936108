// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"math/bits"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// element is one dispatch rule and its Service.
type element struct {
	object *dataplane.Object
	owner  service.Key
}

// node is a subtree of a trie: a single element, or a branch at the first bit in which the keys
// beneath it differ. Invariants: a branch has two children; size is the sum of their sizes; a child's
// bit is greater than its parent's; at bit, the keys in child[0] have the value 0 and those in child[1]
// the value 1.
type node struct {
	// key is the key of an element that is, or once was, beneath: all keys beneath share its bits
	// before bit.
	key string
	// bit is the branching bit, counted from 0; for an element the length of the key in bits.
	bit int
	// size is the number of elements beneath.
	size int
	// dirty means that the set of elements beneath may differ from that of the last flush. A
	// dirty node has no clean ancestor.
	dirty bool
	child [2]*node
	// element is nil for a branch.
	element *element
}

// trie holds the tree elements of one container. Keys have equal length.
type trie struct {
	root *node
}

// put adds or replaces an element. It takes at most twice as many steps as a key has bits.
func (t *trie) put(key string, e *element) {
	fresh := &node{key: key, bit: len(key) * 8, size: 1, dirty: true, element: e}
	if t.root == nil {
		t.root = fresh
		return
	}
	differs := firstDifference(t.closest(key).key, key)
	added := 1
	if differs == fresh.bit {
		added = 0
	}
	at := &t.root
	for (*at).bit < differs {
		(*at).size += added
		(*at).dirty = true
		at = (*at).way(key)
	}
	if added == 0 {
		(*at).element, (*at).dirty = e, true
		return
	}
	branch := &node{key: key, bit: differs, size: (*at).size + 1, dirty: true}
	side := bitAt(key, differs)
	branch.child[side], branch.child[1-side] = fresh, *at
	*at = branch
}

// remove removes an element and reports whether it existed.
func (t *trie) remove(key string) bool {
	if t.root == nil || t.closest(key).key != key {
		return false
	}
	var branch **node
	at := &t.root
	for (*at).element == nil {
		(*at).size--
		(*at).dirty = true
		branch, at = at, (*at).way(key)
	}
	if branch == nil {
		t.root = nil
		return true
	}
	sibling := (*branch).child[1-bitAt(key, (*branch).bit)]
	// The sibling moves up: its prefix now includes the key of the removed element.
	sibling.dirty = true
	*branch = sibling
	return true
}

// closest returns the only element that can have this key. The trie must not be empty.
func (t *trie) closest(key string) *node {
	n := t.root
	for n.element == nil {
		n = *n.way(key)
	}
	return n
}

// way returns the child that a key belongs to.
func (n *node) way(key string) **node { return &n.child[bitAt(key, n.bit)] }

// rank grows with the logarithm of the number of elements: 0 up to LeafMax, and one more for each
// factor of fanout.
func (n *node) rank() int {
	r, most := 0, LeafMax
	for n.size > most {
		r++
		most *= fanout
	}
	return r
}

func bitAt(key string, bit int) int {
	return int(key[bit/8]>>(7-bit%8)) & 1
}

// firstDifference returns the first bit in which two keys of equal length differ, or their length
// in bits if they are equal.
func firstDifference(a, b string) int {
	for i := range len(a) {
		if x := a[i] ^ b[i]; x != 0 {
			return i*8 + bits.LeadingZeros8(x)
		}
	}
	return len(a) * 8
}

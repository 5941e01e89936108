// SPDX-License-Identifier: Apache-2.0

// Package tree composes dispatch elements, one rule each, into iptables chains that form a tree, so
// that the first packet of a connection passes only tens of rules with any number of Services, and a
// change rewrites one leaf. Package render creates the elements; the aggregator of an iptables domain
// calls the [Layout], which owns the trees. The package only computes: it has no locks, and one
// goroutine calls it.
//
//	KUBE-SERVICES            root: jumps by prefix, tail rules
//	  ├─ 172.30.0.0/24 ──► KUBE-SVC-TS-AC1E0000-24        inner chain: jumps
//	  │                      ├─ 172.30.0.0/27 ──► …-27    leaf: at most LeafMax elements
//	  │                      └─ 172.30.0.32/27 ──► …
//	  └─ 172.30.1.0/24 ──► …
//
// The elements of a container, ordered by key, form a binary trie over the bits of their keys, in
// which only bits that distinguish elements have a node. Each subtree has a rank, which depends
// only on its number of elements: rank 0 up to LeafMax, and one more for each factor of fanout. A
// subtree whose rank is lower than that of the subtree around it becomes a separate chain. A
// chain of rank 0 holds its elements; any other holds jumps to the chains of lower rank just below.
// Three goals shaped this:
//
//  1. The chains depend only on the set of elements, not on the order in which they were added: a
//     restarted process composes the same chains byte for byte.
//  2. Each level divides the number of elements by the fanout, so the depth is bounded by the
//     logarithm of that number, even for addresses chosen by an attacker. The nft variant allows
//     16 nested chains (NFT_JUMP_STACK_SIZE, Linux 6.18); windows of fixed bits would need up to
//     38 of them for IPv6.
//  3. A change affects the chains on one path from the root, and usually changes only the text of the
//     leaf: a jump matches the prefix just below the bit at which its subtree separates from its
//     sibling, not the longest prefix that its elements share. (A guard does match the longest one.)
package tree

import (
	"fmt"
	"slices"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// LeafMax is the largest number of elements in one chain. It balances the rules that a packet
// passes in the last chain against the number of chains.
const LeafMax = 32

// fanout is the factor by which the capacity of a chain's tree grows from one rank to the next. A
// chain of jumps usually has between fanout and 2·fanout jumps. It has more only if many single
// elements separate from the rest bit by bit, as arbitrary external addresses may.
const fanout = 8

// Layout implements dataplane.Layout for one family. It owns the containers given to New; Put panics
// for an element of any other container. One goroutine calls it.
type Layout struct {
	family service.Family
	// order has the trees in the order of New's containers, so that Flush returns a stable order.
	order []*tree
	trees map[string]*tree
	// roots are the trees by their root chain, to which tail rules may jump.
	roots map[dataplane.ID]*tree
}

var _ dataplane.Layout = (*Layout)(nil)

// New returns a layout of empty containers. The first Flush composes the root chain of each of them.
// Names and, within a table, letters must be unique.
func New(family service.Family, containers []Container) *Layout {
	l := &Layout{
		family: family, trees: make(map[string]*tree, len(containers)), roots: make(map[dataplane.ID]*tree, len(containers)),
	}
	letters := map[string]string{}
	for _, c := range containers {
		letter := c.Table + "/" + string(c.Letter)
		if other, taken := letters[letter]; taken {
			panic(fmt.Sprintf("tree: %s and %s use one letter", c.Name(), other))
		}
		letters[letter] = c.Name()
		t := &tree{
			container: c, family: family, roots: l.roots, dirty: true, vacant: true,
			root: &chain{id: c.ID()}, chains: map[string]*chain{},
		}
		l.roots[c.ID()] = t
		l.order = append(l.order, t)
		l.trees[c.Name()] = t
	}
	return l
}

// Put adds or replaces an element. Its name comes from TailKey or the key function of the
// container's shape.
func (l *Layout) Put(object *dataplane.Object, owner service.Key) {
	t := l.trees[object.ID.Container]
	if t == nil || !t.holds(object.ID.Name) {
		// This is a bug: renderers build these names from constants and typed values, not from API
		// input.
		panic(fmt.Sprintf("tree: no container for element %x in %q", object.ID.Name, object.ID.Container))
	}
	t.put(object.ID.Name, &element{object: object, owner: owner})
}

// Remove removes an element. It ignores unknown identities.
func (l *Layout) Remove(id dataplane.ID) {
	if t := l.trees[id.Container]; t != nil && t.holds(id.Name) {
		t.remove(id.Name)
	}
}

// Flush returns the chains that changed since the last call. A nil Object means that the chain was
// removed.
func (l *Layout) Flush() []dataplane.Composed {
	l.settleTails()
	var out []dataplane.Composed
	for _, t := range l.order {
		out = t.flush(out)
	}
	return out
}

// tree is one container: its elements and the chains they are folded into.
type tree struct {
	container Container
	family    service.Family
	trie      trie
	// roots are those of the layout.
	roots map[dataplane.ID]*tree
	// tail is sorted by name.
	tail []*element
	// vacant means that the root had no rules after the last call of settleTails.
	vacant bool
	// dirty means that the next flush has to check this tree.
	dirty bool
	root  *chain
	// chains are those of the last flush by name, without the root.
	chains map[string]*chain
	draft  draft
	// out collects the result of a flush; orphans are the chains whose parent no longer jumps to
	// them.
	out     []dataplane.Composed
	orphans []*chain
	// visited counts the trie nodes that flushes visited, for tests.
	visited int
}

// holds reports whether a name can belong to an element of this container.
func (t *tree) holds(name string) bool {
	return hasLane(name) && (isTail(name) || len(name) == 1+t.container.keyBytes(t.family))
}

func isTail(name string) bool { return Lane(name[0]) == Tail }

func (t *tree) put(name string, e *element) {
	t.dirty = true
	if !isTail(name) {
		t.trie.put(name[1:], e)
	} else if i, found := t.searchTail(name); found {
		t.tail[i] = e
	} else {
		t.tail = slices.Insert(t.tail, i, e)
	}
}

func (t *tree) remove(name string) {
	if !isTail(name) {
		t.dirty = t.trie.remove(name[1:]) || t.dirty
	} else if i, found := t.searchTail(name); found {
		t.tail = slices.Delete(t.tail, i, i+1)
		t.dirty = true
	}
}

// chain is one composed chain as of the last flush.
type chain struct {
	id dataplane.ID
	// object is the last one that Flush returned, nil before the first time.
	object *dataplane.Object
	// parent is the chain that jumps to this one, nil for the root and for an orphan.
	// An orphan is removed unless another chain jumps to it.
	parent   *chain
	children []*chain
}

// flush composes each chain whose elements or jumps may have changed, and appends the changed ones to
// out. It follows dirty nodes down from the root.
func (t *tree) flush(out []dataplane.Composed) []dataplane.Composed {
	if !t.dirty {
		return out
	}
	t.dirty = false
	t.out = out
	t.compose(t.root, t.trie.root)
	t.sweep()
	out, t.out = t.out, nil
	return out
}

// subtree is a part of the trie that has its own chain.
type subtree struct {
	chain *chain
	node  *node
}

// compose composes one chain, and then the new and dirty chains below it. top is the subtree that the
// chain serves, nil if there are no tree elements.
func (t *tree) compose(c *chain, top *node) {
	t.draft.reset()
	var below []subtree
	switch {
	case top == nil:
	case c == t.root && t.guarded():
		below = t.addGuard()
	case top.rank() == 0:
		t.addElements(top)
	default:
		below = t.addJumps(nil, top, top.rank())
	}
	if c == t.root {
		for _, e := range t.tail {
			if !t.idle(e) {
				t.draft.addElement(e)
			}
		}
	}
	t.settle(c)
	for _, s := range below {
		if s.chain.object == nil || s.node.dirty {
			t.compose(s.chain, s.node)
		}
	}
}

// guardMin is the number of elements from which a guard is worth its jump.
const guardMin = 4

// guarded reports whether the root has a guard as its only jump into the tree.
func (t *tree) guarded() bool {
	top := t.trie.root
	return t.container.Guarded && top != nil && top.size >= guardMin && top.bit > 0
}

// guard is the longest prefix that all elements share.
func (t *tree) guard() prefix { return prefix{key: t.trie.root.key, bits: t.trie.root.bit} }

// addGuard writes the guard, the root's only jump into the tree.
func (t *tree) addGuard() []subtree {
	c := t.chainFor(t.guard())
	t.addJump(t.guard(), c)
	return []subtree{{chain: c, node: t.trie.root}}
}

// addElements writes all elements beneath a node, in key order.
func (t *tree) addElements(n *node) {
	t.visit(n)
	if n.element != nil {
		t.draft.addElement(n.element)
		return
	}
	t.addElements(n.child[0])
	t.addElements(n.child[1])
}

// addJumps writes the jumps to the largest subtrees of lower rank beneath a node.
func (t *tree) addJumps(below []subtree, n *node, rank int) []subtree {
	t.visit(n)
	for _, child := range n.child {
		if child.rank() == rank {
			below = t.addJumps(below, child, rank)
			continue
		}
		p := prefix{key: child.key, bits: n.bit + 1}
		c := t.chainFor(p)
		t.addJump(p, c)
		below = append(below, subtree{chain: c, node: child})
	}
	return below
}

func (t *tree) addJump(p prefix, c *chain) {
	var room [len(protocols)]string
	for _, match := range t.container.appendMatches(room[:0], t.family, p) {
		t.draft.addLine(match+" -j "+c.id.Name, service.Node)
	}
	t.draft.addRef(c.id)
	t.draft.children = append(t.draft.children, c)
}

// visit marks a node as clean.
func (t *tree) visit(n *node) {
	t.visited++
	n.dirty = false
}

// chainFor finds or creates the chain of a prefix. An existing chain whose subtree is not dirty is up to
// date, because its text depends only on the elements under its prefix.
func (t *tree) chainFor(p prefix) *chain {
	var b [32]byte
	name := t.container.appendChain(b[:0], p)
	if c, ok := t.chains[string(name)]; ok {
		return c
	}
	c := &chain{id: t.container.chainID(string(name))}
	t.chains[c.id.Name] = c
	return c
}

// settle assigns the draft to its chain. The previous children become orphans until a chain adopts
// them: this one again, or one that is composed later, because a subtree only moves between chains on
// one path, and chains are composed from the root down.
func (t *tree) settle(c *chain) {
	for _, old := range c.children {
		old.parent = nil
		t.orphans = append(t.orphans, old)
	}
	c.children = t.draft.children
	for _, child := range c.children {
		child.parent = c
	}
	if object := t.draft.object(c.id, c.object); object != c.object {
		c.object = object
		t.out = append(t.out, dataplane.Composed{ID: c.id, Object: object})
	}
}

// sweep removes the orphans that no chain adopted, and all chains that only they jumped to.
func (t *tree) sweep() {
	for len(t.orphans) > 0 {
		last := len(t.orphans) - 1
		c := t.orphans[last]
		t.orphans = t.orphans[:last]
		if c.parent != nil || t.chains[c.id.Name] != c {
			continue
		}
		delete(t.chains, c.id.Name)
		t.out = append(t.out, dataplane.Composed{ID: c.id})
		for _, child := range c.children {
			if child.parent == c {
				child.parent = nil
				t.orphans = append(t.orphans, child)
			}
		}
	}
}

// draft collects the lines of a chain while it is composed.
type draft struct {
	body     []byte
	refs     []dataplane.ID
	parts    []dataplane.Part
	children []*chain
}

func (d *draft) reset() {
	d.body = d.body[:0]
	d.refs = d.refs[:0]
	d.parts = d.parts[:0]
	d.children = nil // the old slice belongs to a chain
}

func (d *draft) addElement(e *element) {
	d.addLine(e.object.Body, e.owner)
	for _, ref := range e.object.Refs() {
		d.addRef(ref)
	}
}

func (d *draft) addLine(line string, owner service.Key) {
	if len(d.parts) > 0 {
		d.body = append(d.body, '\n')
	}
	d.body = append(d.body, line...)
	d.parts = append(d.parts, dataplane.Part{Owner: owner})
}

// addRef adds a reference, once. A linear search is enough, because chains are short.
func (d *draft) addRef(id dataplane.ID) {
	if !slices.Contains(d.refs, id) {
		d.refs = append(d.refs, id)
	}
}

// object returns the draft as an object, or the old object if they are equal.
func (d *draft) object(id dataplane.ID, old *dataplane.Object) *dataplane.Object {
	if old != nil && old.Body == string(d.body) &&
		slices.Equal(old.Parts(), d.parts) && slices.Equal(old.Refs(), d.refs) {
		return old
	}
	return &dataplane.Object{
		ID:   id,
		Kind: dataplane.Owned,
		Body: string(d.body),
		Links: &dataplane.Links{
			Refs:  append([]dataplane.ID(nil), d.refs...),
			Parts: append([]dataplane.Part(nil), d.parts...),
		},
	}
}

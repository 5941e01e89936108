package dispatch

import (
	"slices"
	"strings"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// LeafMax is the largest number of elements in one chain. It balances the rules
// that a packet passes in the last chain against the number of chains.
const LeafMax = 32

// fanout is the factor by which the capacity of a chain's tree grows from one
// rank to the next. A chain of jumps usually has between fanout and 2·fanout of
// them; more only where many lonely elements part from the rest bit by bit, as
// arbitrary external addresses may.
const fanout = 8

// tree is one container: its elements and the chains they are folded into.
type tree struct {
	container Container
	family    service.Family
	trie      trie
	// head and tail are sorted by name.
	head, tail []*element
	// dirty tells that a flush has something to look at.
	dirty bool
	root  *chain
	// chains are those of the last flush by name, the root excepted.
	chains map[string]*chain
	draft  draft
	// out gathers the answer of a flush, orphans the chains that a flush has
	// taken away from their parent.
	out     []dataplane.Composed
	orphans []*chain
	// visited counts the trie nodes looked at by flushes; tests bound it.
	visited int
}

func newTree(family service.Family, container Container) *tree {
	return &tree{
		container: container,
		family:    family,
		dirty:     true,
		root:      &chain{id: container.ID()},
		chains:    map[string]*chain{},
	}
}

func (t *tree) put(name string, e *element) {
	t.dirty = true
	if list := t.list(name); list != nil {
		i, found := search(*list, name)
		if found {
			(*list)[i] = e
		} else {
			*list = slices.Insert(*list, i, e)
		}
		return
	}
	t.trie.put(name[1:], e)
}

func (t *tree) remove(name string) {
	if list := t.list(name); list != nil {
		if i, found := search(*list, name); found {
			*list = slices.Delete(*list, i, i+1)
			t.dirty = true
		}
		return
	}
	if t.trie.remove(name[1:]) {
		t.dirty = true
	}
}

// list gives the list that a name belongs to, nil for the trie.
func (t *tree) list(name string) *[]*element {
	switch Lane(name[0]) {
	case Head:
		return &t.head
	case Tail:
		return &t.tail
	default:
		return nil
	}
}

func search(list []*element, name string) (int, bool) {
	return slices.BinarySearchFunc(list, name, func(e *element, name string) int {
		return strings.Compare(e.object.ID.Name, name)
	})
}

// flush composes again every chain whose elements or jumps may have changed, and
// appends those that did to out. It follows dirty nodes down from the root.
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

// compose writes one chain, and then those below it that need it. top is the
// subtree that the chain serves, nil when there are no tree elements.
func (t *tree) compose(c *chain, top *node) {
	d := &t.draft
	d.reset()
	if c == t.root {
		d.addAll(t.head)
	}
	var below []subtree
	switch {
	case top == nil:
	case top.rank() == 0:
		t.addElements(top)
	default:
		below = t.addJumps(nil, top, top.rank())
	}
	if c == t.root {
		d.addAll(t.tail)
	}
	t.settle(c)
	for _, s := range below {
		if s.chain.object == nil || s.node.dirty {
			t.compose(s.chain, s.node)
		}
	}
}

// subtree is a part of the trie that has a chain of its own.
type subtree struct {
	chain *chain
	node  *node
}

func (d *draft) addAll(elements []*element) {
	for _, e := range elements {
		d.addElement(e)
	}
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

// visit marks a node as seen by this flush.
func (t *tree) visit(n *node) {
	t.visited++
	n.dirty = false
}

// chainFor finds the chain of a prefix, or begins one. A chain that exists, and
// whose subtree is not dirty, holds what it should: its text depends on the
// elements under its prefix alone.
func (t *tree) chainFor(p prefix) *chain {
	var b [32]byte
	name := t.container.appendChain(b[:0], p)
	if c, ok := t.chains[string(name)]; ok {
		return c
	}
	c := &chain{id: dataplane.ID{Container: t.container.Table, Name: string(name)}}
	t.chains[c.id.Name] = c
	return c
}

// settle hands the draft to its chain. Its former children become orphans until
// somebody takes them in: this chain again, or one that is composed later, since
// a subtree only moves between chains on one path, and chains are composed from
// the root down.
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

// sweep takes away the orphans that nobody took in, with all that only they
// jumped to.
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

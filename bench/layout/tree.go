package main

import "fmt"

// A node of the dispatch tree. A leaf lists elements; an inner node lists the prefixes below it.
type node struct {
	prefix   uint32
	length   int
	elements []element // of a leaf, in address order
	children []*node   // of an inner node, in address order
}

// An element is what the dispatch finds: an address and the rest of its rule.
type element struct {
	address uint32
	rule    string // everything behind "-A <chain> "
}

// window is how many address bits one inner chain decides, so that it holds at most 16 rules.
const window = 4

// grow builds the tree over elements, which are in address order. A leaf is the shortest prefix
// that holds at most leafMax elements. An inner node with a single inner child is left out.
func grow(elements []element, leafMax int) *node {
	return growBelow(elements, 0, 0, leafMax)
}

func growBelow(elements []element, prefix uint32, length, leafMax int) *node {
	if len(elements) <= leafMax || length == 32 {
		return &node{prefix: prefix, length: length, elements: elements}
	}
	inner := &node{prefix: prefix, length: length}
	inner.list(elements, prefix, length, leafMax)
	if len(inner.children) == 1 && inner.children[0].children != nil {
		return inner.children[0]
	}
	return inner
}

// list appends what lies below prefix/length to the children of the inner node n, in whose window it is.
func (n *node) list(elements []element, prefix uint32, length, leafMax int) {
	switch {
	case len(elements) == 0:
	case length > n.length && (len(elements) <= leafMax || length == n.length+window):
		n.children = append(n.children, growBelow(elements, prefix, length, leafMax))
	default:
		upper := prefix | 1<<(31-length)
		split := 0
		for split < len(elements) && elements[split].address < upper {
			split++
		}
		n.list(elements[:split], prefix, length+1, leafMax)
		n.list(elements[split:], upper, length+1, leafMax)
	}
}

// name is the chain of a node that is not the root. Its KUBE-SVC- prefix lets kube-proxy's own sweep of
// stale chains remove it when an operator goes back.
func (n *node) name(tag string) string {
	return fmt.Sprintf("KUBE-SVC-%s-%08x-%d", tag, n.prefix, n.length)
}

// walk calls visit for n and all nodes below it, with the rules a packet passes before it gets there.
func (n *node) walk(passed int, visit func(n *node, passed int)) {
	visit(n, passed)
	for i, child := range n.children {
		child.walk(passed+i+1, visit)
	}
}

// rules are the lines of n's own chain. match is "-d" or, for the hairpin tree, "-s".
func (n *node) rules(chain, match, tag string) []string {
	lines := make([]string, 0, len(n.elements)+len(n.children))
	for _, e := range n.elements {
		lines = append(lines, "-A "+chain+" "+e.rule)
	}
	for _, child := range n.children {
		lines = append(lines, fmt.Sprintf("-A %s %s %s/%d -j %s", chain, match, dotted(child.prefix), child.length, child.name(tag)))
	}
	return lines
}

func dotted(a uint32) string {
	return fmt.Sprintf("%d.%d.%d.%d", a>>24, a>>16&255, a>>8&255, a&255)
}

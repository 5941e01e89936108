package dispatch

import (
	"fmt"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// Layout implements dataplane.Layout for one family. It owns the containers it
// was made with; every other identity is a mistake of the program. One goroutine
// calls it.
type Layout struct {
	family service.Family
	// order is that of New, so that equal calls flush in equal order.
	order []*tree
	trees map[string]*tree
}

var _ dataplane.Layout = (*Layout)(nil)

// New makes a layout of empty containers. The first Flush composes the root
// chain of every one of them. Names and, within a table, letters are unique.
func New(family service.Family, containers []Container) *Layout {
	l := &Layout{family: family, trees: make(map[string]*tree, len(containers))}
	letters := map[string]string{}
	for _, c := range containers {
		letter := c.Table + "/" + string(c.Letter)
		if other, taken := letters[letter]; taken {
			panic(fmt.Sprintf("dispatch: %s and %s have the same letter", c.Name(), other))
		}
		letters[letter] = c.Name()
		t := newTree(family, c)
		l.order = append(l.order, t)
		l.trees[c.Name()] = t
	}
	return l
}

// Put places or replaces an element. Its name is one of HeadKey, TailKey, or the
// key function of the container's shape.
func (l *Layout) Put(object *dataplane.Object, owner service.Key) {
	t := l.trees[object.ID.Container]
	if t == nil || !t.holds(object.ID.Name) {
		// Renderers make these names from constants and typed values; no API
		// input can reach here.
		panic(fmt.Sprintf("dispatch: no container for element %x in %q", object.ID.Name, object.ID.Container))
	}
	t.put(object.ID.Name, &element{object: object, owner: owner})
}

// Remove takes an element away; unknown identities are ignored.
func (l *Layout) Remove(id dataplane.ID) {
	if t := l.trees[id.Container]; t != nil && t.holds(id.Name) {
		t.remove(id.Name)
	}
}

// Flush gives the chains that changed since the last call; a nil Object means
// that the chain is gone.
func (l *Layout) Flush() []dataplane.Composed {
	var out []dataplane.Composed
	for _, t := range l.order {
		out = t.flush(out)
	}
	return out
}

// holds tells whether a name can belong to an element of this container.
func (t *tree) holds(name string) bool {
	if name == "" || Lane(name[0]) > Tail {
		return false
	}
	return Lane(name[0]) != Tree || len(name) == 1+t.container.keyBytes(t.family)
}

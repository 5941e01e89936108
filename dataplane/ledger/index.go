package ledger

import (
	"iter"
	"strings"

	"github.com/sluice-proxy/sluice/dataplane"
)

// index finds the entry of an identity. There are few containers and many names,
// so each container has a map of its own: a name takes half the room of an
// identity, and the maps do not all double at once.
//
// The texts of identities are copied: a renderer may have cut them from one text
// for all objects of a fragment, which an entry that outlives the fragment would
// keep alive.
//
// Invariant: no container without entries is kept; count is the number of
// entries.
type index struct {
	containers map[string]map[string]*entry
	count      int
}

func newIndex() index { return index{containers: map[string]map[string]*entry{}} }

// get gives nil when there is no entry.
func (x *index) get(id dataplane.ID) *entry { return x.containers[id.Container][id.Name] }

// demand gives the entry of an identity, a new one when there is none.
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

// remove forgets an entry; one that is not there is ignored.
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

// all walks over the entries in no order. The present one may be removed.
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

// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"hash/maphash"
	"iter"
	"slices"
	"strings"

	"github.com/sluice-proxy/sluice/dataplane"
)

// index finds the entry of an identity. A node may have a million entries, so its keys are hashes: the objects of an
// entry contain its identity, and a map with identities as keys would take three times the memory.
//
// Invariant: of the entries without an object, the nameless, each has its identity in nameless.
type index struct {
	// hash is nil for maphash.
	hash    func(dataplane.ID) uint64
	entries map[uint64]*entry
	// collided has the other entries of a hash, if several have it; entries has one of them.
	collided map[uint64][]*entry
	nameless map[*entry]dataplane.ID
	count    int
}

var indexSeed = maphash.MakeSeed()

func (x *index) hashOf(id dataplane.ID) uint64 {
	if x.hash != nil {
		return x.hash(id)
	}
	return maphash.String(indexSeed, id.Name) ^ maphash.String(indexSeed, id.Container)*3
}

// get returns nil if there is no entry.
func (x *index) get(id dataplane.ID) *entry { return x.of(x.hashOf(id), id) }

func (x *index) of(hash uint64, id dataplane.ID) *entry {
	e := x.entries[hash]
	if e == nil || x.id(e) == id {
		return e
	}
	for _, e := range x.collided[hash] {
		if x.id(e) == id {
			return e
		}
	}
	return nil
}

// id returns the identity of an entry.
func (x *index) id(e *entry) dataplane.ID {
	if object := e.object(); object != nil {
		return object.ID
	}
	return x.nameless[e]
}

// demand returns the entry of an identity. It adds one if there is none; then the caller
// gives it an object, or calls name, before anything else is looked up.
func (x *index) demand(id dataplane.ID) *entry {
	hash := x.hashOf(id)
	if e := x.of(hash, id); e != nil {
		return e
	}
	if x.entries == nil {
		x.entries, x.collided, x.nameless = map[uint64]*entry{}, map[uint64][]*entry{}, map[*entry]dataplane.ID{}
	}
	e := &entry{}
	if x.entries[hash] == nil {
		x.entries[hash] = e
	} else {
		x.collided[hash] = append(x.collided[hash], e)
	}
	x.count++
	return e
}

// name keeps the identity of an entry that has no object any more.
func (x *index) name(id dataplane.ID, e *entry) {
	if e.object() != nil {
		if len(x.nameless) > 0 {
			delete(x.nameless, e)
		}
		return
	}
	if _, named := x.nameless[e]; !named {
		// The strings may be parts of a fragment's text, which would stay in memory as a whole.
		x.nameless[e] = dataplane.ID{Container: strings.Clone(id.Container), Name: strings.Clone(id.Name)}
	}
}

// remove removes the entry of an identity, if there is one.
func (x *index) remove(id dataplane.ID, e *entry) {
	hash := x.hashOf(id)
	others := x.collided[hash]
	at := slices.Index(others, e)
	switch {
	case x.entries[hash] != e && at < 0:
		return
	case x.entries[hash] != e:
		others = slices.Delete(others, at, at+1)
	case len(others) > 0:
		x.entries[hash], others = others[0], others[1:]
	default:
		delete(x.entries, hash)
	}
	if x.collided[hash] = others; len(others) == 0 {
		delete(x.collided, hash)
	}
	delete(x.nameless, e)
	x.count--
}

// all walks over the entries in no order. The current entry may be removed. If others are added or removed during the
// walk, it visits all entries that stay, and perhaps some of the added or removed ones.
func (x *index) all() iter.Seq2[dataplane.ID, *entry] {
	return func(yield func(dataplane.ID, *entry) bool) {
		for e := range x.walk() {
			if !yield(x.id(e), e) {
				return
			}
		}
	}
}

// walk is all without the identities, which take most of its time.
func (x *index) walk() iter.Seq[*entry] {
	return func(yield func(*entry) bool) {
		for hash, e := range x.entries {
			var others []*entry
			if len(x.collided) > 0 {
				others = slices.Clone(x.collided[hash])
			}
			if !yield(e) {
				return
			}
			for _, e := range others {
				if !yield(e) {
					return
				}
			}
		}
	}
}

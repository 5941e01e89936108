package ledger

import (
	"hash/maphash"
	"iter"
	"strings"

	"github.com/sluice-proxy/sluice/dataplane"
)

// index finds the entry of an identity. A node may have a million entries, so it keeps no
// copy of an identity: the objects of an entry tell it. That takes a third of what a map
// from names takes.
//
// It is a hash table in many parts, each with open addressing and linear probing. A part
// grows by itself, so that no change waits until all entries have moved.
//
// Invariant: of the entries without an object, the nameless, each has its identity in
// nameless; count is the number of entries.
type index struct {
	parts    [1 << partBits]part
	nameless map[*entry]dataplane.ID
	count    int
}

const partBits = 9

// part has a power of two of places, of which at least a quarter are nil.
//
// Invariant: between the place where an entry belongs by its hash and the one that it has,
// all places are taken.
type part struct {
	places []*entry
	taken  int
}

var indexSeed = maphash.MakeSeed()

// find returns the part of an identity, and its hash within the part.
func (x *index) find(id dataplane.ID) (*part, uint32) {
	h := maphash.String(indexSeed, id.Name) ^ maphash.String(indexSeed, id.Container)*3
	return &x.parts[h>>(64-partBits)], uint32(h)
}

// get returns nil if there is no entry.
func (x *index) get(id dataplane.ID) *entry {
	p, hash := x.find(id)
	return x.in(p, hash, id)
}

// in returns the entry of an identity in its part.
func (x *index) in(p *part, hash uint32, id dataplane.ID) *entry {
	if len(p.places) == 0 {
		return nil
	}
	for at := p.home(hash); p.places[at] != nil; at = p.after(at) {
		if e := p.places[at]; e.hash == hash && x.id(e) == id {
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
	p, hash := x.find(id)
	if e := x.in(p, hash, id); e != nil {
		return e
	}
	if 4*(p.taken+1) > 3*len(p.places) {
		p.resize(max(4, 2*len(p.places)))
	}
	e := &entry{hash: hash}
	p.put(e)
	p.taken++
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
	if _, named := x.nameless[e]; named {
		return
	}
	if x.nameless == nil {
		x.nameless = map[*entry]dataplane.ID{}
	}
	// The texts may be cut from one of a fragment, which would stay in memory.
	x.nameless[e] = dataplane.ID{Container: strings.Clone(id.Container), Name: strings.Clone(id.Name)}
}

// remove removes the entry of an identity, if there is one.
func (x *index) remove(id dataplane.ID, e *entry) {
	p, _ := x.find(id)
	at := p.home(e.hash)
	for ; p.places[at] != e; at = p.after(at) {
		if p.places[at] == nil {
			return
		}
	}
	delete(x.nameless, e)
	p.taken--
	x.count--
	p.vacate(at)
}

// all walks over the entries in no order. The present entry may be removed, and nothing
// else be changed.
func (x *index) all() iter.Seq2[dataplane.ID, *entry] {
	return func(yield func(dataplane.ID, *entry) bool) {
		for i := range x.parts {
			if !x.walk(&x.parts[i], yield) {
				return
			}
		}
	}
}

// walk walks over a part backward from an empty place, because removing an entry moves
// later ones forward, up to the next empty place.
func (x *index) walk(p *part, yield func(dataplane.ID, *entry) bool) bool {
	empty := 0
	for empty < len(p.places) && p.places[empty] != nil {
		empty++
	}
	for back := 1; back < len(p.places); back++ {
		e := p.places[(empty-back)&(len(p.places)-1)]
		if e != nil && !yield(x.id(e), e) {
			return false
		}
	}
	p.trim()
	return true
}

// home returns the place where an entry belongs.
func (p *part) home(hash uint32) int { return int(hash) & (len(p.places) - 1) }

func (p *part) after(at int) int { return (at + 1) & (len(p.places) - 1) }

// put places an entry.
func (p *part) put(e *entry) {
	at := p.home(e.hash)
	for p.places[at] != nil {
		at = p.after(at)
	}
	p.places[at] = e
}

// vacate empties a place, and moves forward what it kept from its own.
func (p *part) vacate(hole int) {
	p.places[hole] = nil
	for at := p.after(hole); p.places[at] != nil; at = p.after(at) {
		e := p.places[at]
		distance := (at - p.home(e.hash)) & (len(p.places) - 1)
		if distance >= (at-hole)&(len(p.places)-1) {
			p.places[hole], p.places[at] = e, nil
			hole = at
		}
	}
}

// resize moves all entries of the part.
func (p *part) resize(places int) {
	old := p.places
	p.places = make([]*entry, places)
	for _, e := range old {
		if e != nil {
			p.put(e)
		}
	}
}

// trim returns the memory of a part that has become nearly empty.
func (p *part) trim() {
	if p.taken == 0 {
		p.places = nil
	} else if places := len(p.places); places > 8*p.taken {
		for places > 4*p.taken {
			places /= 2
		}
		p.resize(max(4, places))
	}
}

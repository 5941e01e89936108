// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// inventory is what the kernel has, by owner.
type inventory struct {
	l      *Ledger
	origin dataplane.Origin
	// any is set if the kernel has anything at all.
	any bool
	// named has the objects that belong to a Service that does not claim them. unclaimed has the objects that no
	// Service claims. parts lists the unclaimed elements by the object that they are in.
	named     map[service.Key][]*dataplane.Object
	unclaimed map[dataplane.ID]*dataplane.Object
	parts     map[dataplane.ID][]dataplane.ID
	// common are claimed elements without an owner or a frontend.
	common []*dataplane.Object
	// elements are the elements of composed objects.
	elements map[dataplane.ID]*dataplane.Object
	// settled has the frontends at which an object names the Service that has the frontend in the API.
	settled map[service.Frontend]bool
}

func (l *Ledger) newInventory(origin dataplane.Origin) *inventory {
	e := &inventory{l: l, origin: origin, unclaimed: map[dataplane.ID]*dataplane.Object{},
		named: map[service.Key][]*dataplane.Object{}, parts: map[dataplane.ID][]dataplane.ID{},
		elements: map[dataplane.ID]*dataplane.Object{}, settled: map[service.Frontend]bool{}}
	e.findSettled()
	var unclaimed, elements []*dataplane.Object
	for _, entry := range l.entries.all() {
		l.steps++
		switch {
		case entry.known == nil || entry.unsure:
		case entry.claims.len() == 0:
			unclaimed = append(unclaimed, entry.known)
		default:
			e.any = true
			e.name(entry.known)
		}
	}
	e.any = e.any || len(unclaimed) > 0
	if l.layout != nil {
		elements, unclaimed = l.layout.Recover(unclaimed)
	}
	for _, element := range elements {
		e.elements[element.ID] = element
		if l.entries.get(element.ID) == nil {
			unclaimed = append(unclaimed, element)
		} else {
			e.name(element)
		}
	}
	for _, o := range unclaimed {
		e.unclaimed[o.ID] = o
		if owner, ok := e.owner(o); ok {
			e.named[owner] = append(e.named[owner], o)
			continue
		}
		if origin == nil || o.Kind != dataplane.Element {
			continue
		}
		if refs := origin.Refs(o); len(refs) > 0 {
			e.parts[refs[0]] = append(e.parts[refs[0]], o.ID)
		}
	}
	return e
}

// name lists a claimed object under the Service that it belongs to, unless that Service claims it.
func (e *inventory) name(o *dataplane.Object) {
	switch owner, ok := e.owner(o); {
	case !ok && e.origin != nil && o.Kind == dataplane.Element:
		if _, ofFrontend := e.l.naming.Frontend(o.ID); !ofFrontend {
			e.common = append(e.common, o)
		}
	case ok && !e.l.claims(e.l.accounts[owner], o.ID):
		e.named[owner] = append(e.named[owner], o)
	}
}

// owner returns the Service that an object in the kernel belongs to: the Service that the object names. If it names
// none, or if any object at its frontend names the Service that has the frontend in the API, it belongs to that
// Service. So the objects that were found at a frontend stay together until its owner submits, and no longer.
func (e *inventory) owner(o *dataplane.Object) (owner service.Key, known bool) {
	var named bool
	if e.origin != nil {
		owner, named = e.origin.Owner(o)
	}
	if f, ok := e.l.naming.Frontend(o.ID); ok && (!named || e.settled[f]) {
		if has, known := e.l.frontends.owner(f); known {
			return has, true
		}
	}
	return owner, named
}

func (e *inventory) findSettled() {
	if e.origin == nil {
		return
	}
	for id, entry := range e.l.entries.all() {
		e.l.steps++
		f, ok := e.l.naming.Frontend(id)
		if !ok || entry.known == nil || entry.unsure || e.settled[f] {
			continue
		}
		if named, is := e.origin.Owner(entry.known); is {
			has, known := e.l.frontends.owner(f)
			e.settled[f] = known && has == named
		}
	}
}

// unattributed returns the elements that may belong to any Service, whether another one claims them or not.
func (e *inventory) unattributed() *dataplane.Fragment {
	var objects []dataplane.Object
	for _, o := range e.common {
		if !e.attributed(o) {
			objects = append(objects, *o)
		}
	}
	for _, o := range e.unclaimed {
		if o.Kind == dataplane.Element && !e.attributed(o) {
			objects = append(objects, *o)
		}
	}
	objects = e.close(objects, nil)
	return dataplane.NewFragment(service.Key{}, objects)
}

// attributed reports whether an object belongs to a Service, or is in an object that a
// single Service wants or that is itself unclaimed.
func (e *inventory) attributed(o *dataplane.Object) bool {
	if _, ok := e.owner(o); ok {
		return true
	}
	if e.origin == nil {
		return false
	}
	refs := e.origin.Refs(o)
	if len(refs) == 0 {
		return false
	}
	if e.unclaimed[refs[0]] != nil {
		return true
	}
	in := e.l.entries.get(refs[0])
	return in != nil && in.claims.len() == 1 && in.claims.sole.by != nil && in.claims.sole.by.key != service.Node
}

// present returns what the kernel has of an account as a fragment: the objects that it wants, those that name it, and
// the objects to which these refer, even if others want them. It returns nil if there is nothing.
func (e *inventory) present(a *account) *dataplane.Fragment {
	objects := append(e.wanted(a), e.ofName(a.key)...)
	if len(objects) == 0 {
		return nil
	}
	return dataplane.NewFragment(a.key, e.close(objects, a))
}

// ofName returns the objects that name a Service that does not claim them.
func (e *inventory) ofName(key service.Key) (objects []dataplane.Object) {
	for _, o := range e.named[key] {
		objects = append(objects, *o)
	}
	return objects
}

// close adds what the objects of an account refer to, and the unclaimed elements in them.
func (e *inventory) close(objects []dataplane.Object, a *account) []dataplane.Object {
	taken := map[dataplane.ID]bool{}
	for i := range objects {
		taken[objects[i].ID] = true
	}
	take := func(id dataplane.ID) {
		o := e.unclaimed[id]
		if o == nil {
			o = e.shared(id, a)
		}
		if o != nil && !taken[id] {
			taken[id] = true
			objects = append(objects, *o)
		}
	}
	for i := 0; i < len(objects); i++ { // objects grows
		e.l.steps++
		for _, ref := range refsOf(&objects[i], e.origin) {
			take(ref)
		}
		for _, part := range e.parts[objects[i].ID] {
			take(part)
		}
	}
	return objects
}

// shared returns an object that an account refers to: as other accounts want it, or as it is in the kernel if none
// does. It returns nil for an element, and if there is no such object. An object that only others want may not be there
// yet, but belongs to the objects that were taken as others want them.
func (e *inventory) shared(id dataplane.ID, a *account) *dataplane.Object {
	entry := e.l.entries.get(id)
	if entry == nil {
		return nil
	}
	o := entry.known
	if entry.claims.sharedWith(a) {
		o = entry.claims.winner().object
	} else if entry.unsure {
		return nil
	}
	if o == nil || o.Kind == dataplane.Element {
		return nil
	}
	return o
}

// isOf reports whether an object in the kernel belongs to an account: for certain, or its owner is
// not known and no other account wins it.
func (e *inventory) isOf(there *dataplane.Object, a *account) bool {
	if owner, known := e.owner(there); known {
		return owner == a.key
	}
	winner := e.l.entries.get(there.ID).claims.winner()
	return winner == nil || winner.by == a
}

// wanted returns the account's objects that the kernel has, as they are there. It leaves out an object of another
// Service unless it is the same for both. It also leaves out the targets of references: close adds those that are
// needed.
func (e *inventory) wanted(a *account) (objects []dataplane.Object) {
	fragments := []*dataplane.Fragment{a.latest, a.applied}
	targets := map[dataplane.ID]bool{}
	for _, f := range fragments {
		for _, object := range objectsOf(f) {
			for _, ref := range object.Refs() {
				targets[ref] = true
			}
		}
	}
	for _, f := range fragments {
		wants := objectsOf(f)
		for i := range wants {
			e.l.steps++
			object := &wants[i]
			there := e.known(object)
			if there == nil || targets[object.ID] {
				continue
			}
			if dataplane.Same(there, object) || e.isOf(there, a) {
				objects = append(objects, *there)
			}
		}
	}
	return objects
}

// known returns what the kernel has of an object; nil if nothing, or if unknown.
func (e *inventory) known(object *dataplane.Object) *dataplane.Object {
	entry := e.l.entries.get(object.ID)
	switch {
	case entry == nil || entry.unsure:
		return nil
	case e.l.layout != nil && object.Kind == dataplane.Element:
		return e.elements[object.ID]
	default:
		return entry.known
	}
}

// refsOf returns the references of an object. An object that was read may have none in Refs: then origin finds them.
func refsOf(o *dataplane.Object, origin dataplane.Origin) []dataplane.ID {
	if len(o.Refs()) == 0 && origin != nil {
		return origin.Refs(o)
	}
	return o.Refs()
}

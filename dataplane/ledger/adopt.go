package ledger

import (
	"slices"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// Adopt takes over what a former process has left in the kernel. It is called once,
// after the first Observe, with the keys of Services that exist and have submitted
// nothing yet. Whatever already matches what is wanted is applied, and returned as
// settled. For every other Service, what the kernel has counts as its last applied
// fragment: Hold falls back to it, and it stays for a Service that has not submitted. So
// a restart leaves no Service worse off for being refused or late.
//
// Origin says whose the objects are that no Service wants any more; it may be nil.
// Adopt walks all objects: it belongs to the start, never to the path of one change.
func (l *Ledger) Adopt(absent []service.Key, origin dataplane.Origin) []dataplane.Contribution {
	contributions := make([]dataplane.Contribution, 0, len(l.pending))
	for a := range l.pending {
		contributions = append(contributions, a.contribution())
	}
	slices.SortFunc(contributions, func(a, b dataplane.Contribution) int { return a.Key.Compare(b.Key) })
	settled := l.settle(contributions)
	if len(l.pending) == 0 && len(absent) == 0 {
		return settled
	}
	found := l.newEstate(origin)
	if !found.any {
		return settled
	}
	for a := range l.pending {
		if a.key != service.Node && !a.latest.Gone {
			a.applied = found.standing(a)
			l.remains.inherit(a)
		}
	}
	for _, key := range absent {
		if l.accounts[key] != nil {
			continue
		}
		a := &account{key: key}
		if left := found.standing(a); left != nil {
			l.accounts[key], a.applied = a, left
			l.fold(a, left)
			l.remains.inherit(a)
		}
	}
	if len(l.remains.heirs) > 0 {
		l.remains.account = &account{key: service.Key{Name: "a former process"}}
		l.fold(l.remains.account, found.nameless())
	}
	return settled
}

// remains are elements in the kernel that nobody wants any more and that may be of any
// Service that a former process has served: they stay until each of those is in force
// as it is now, or gone.
type remains struct {
	account *account
	heirs   map[*account]bool
}

// inherit counts an account of which the kernel has more or less than it wants.
func (r *remains) inherit(a *account) {
	if a.applied == nil {
		return
	}
	if r.heirs == nil {
		r.heirs = map[*account]bool{}
	}
	r.heirs[a] = true
}

// settleRemains lets the remains go when no heir is left.
func (l *Ledger) settleRemains(a *account) {
	r := &l.remains
	if !r.heirs[a] {
		return
	}
	if delete(r.heirs, a); len(r.heirs) == 0 {
		l.fold(r.account, nil)
		l.remains = remains{}
	}
}

// Freeze holds the keys and wants what the kernel has of them. It is for Services of
// which the kernel refuses even what was applied before, so that nothing of theirs is
// written until Release or Restore. It walks all objects: it belongs to failures that
// have no other way out.
func (l *Ledger) Freeze(keys []service.Key, origin dataplane.Origin) {
	found := l.newEstate(origin)
	for _, key := range keys {
		if a := l.accounts[key]; a != nil {
			l.Hold(key)
			a.frozen, a.standing = true, found.standing(a)
			l.fold(a, a.standing)
		}
	}
}

// Frozen reports whether a key has fallen back to what the kernel has.
func (l *Ledger) Frozen(key service.Key) bool {
	a := l.accounts[key]
	return a != nil && a.frozen
}

// Restore wants what was last applied of a frozen key, which stays held.
func (l *Ledger) Restore(key service.Key) {
	a := l.accounts[key]
	if a == nil || !a.held || !a.frozen {
		return
	}
	a.frozen, a.standing = false, nil
	l.fold(a, a.applied)
}

// estate is what the kernel has, sorted by whose it may be.
type estate struct {
	l      *Ledger
	origin dataplane.Origin
	// any is set when the kernel has anything at all.
	any bool
	// named holds what the kernel keeps the name of a Service with that does not claim
	// it. orphans are claimed by nobody, and parts are those that live in another one.
	named   map[service.Key][]*dataplane.Object
	orphans map[dataplane.ID]*dataplane.Object
	parts   map[dataplane.ID][]dataplane.ID
	// elements are those that composed objects hold.
	elements map[dataplane.ID]*dataplane.Object
}

func (l *Ledger) newEstate(origin dataplane.Origin) *estate {
	e := &estate{l: l, origin: origin, orphans: map[dataplane.ID]*dataplane.Object{},
		named: map[service.Key][]*dataplane.Object{}, parts: map[dataplane.ID][]dataplane.ID{},
		elements: map[dataplane.ID]*dataplane.Object{}}
	var unclaimed, elements []*dataplane.Object
	for _, entry := range l.entries.all() {
		l.steps++
		switch {
		case entry.known == nil || entry.unsure:
		case entry.claims.len() == 0:
			unclaimed = append(unclaimed, entry.known)
		default:
			e.any = true
			e.name(entry.known, entry)
		}
	}
	e.any = e.any || len(unclaimed) > 0
	if l.layout != nil {
		elements, unclaimed = l.layout.Recover(unclaimed)
	}
	for _, element := range elements {
		e.elements[element.ID] = element
		if entry := l.entries.get(element.ID); entry == nil {
			unclaimed = append(unclaimed, element)
		} else {
			e.name(element, entry)
		}
	}
	for _, o := range unclaimed {
		e.orphans[o.ID] = o
		if e.name(o, nil) || origin == nil || o.Kind != dataplane.Element {
			continue
		}
		if refs := origin.Refs(o); len(refs) > 0 {
			e.parts[refs[0]] = append(e.parts[refs[0]], o.ID)
		}
	}
	return e
}

// name files an object under the Service that it names, unless that one claims it. It
// reports whether there is such a name.
func (e *estate) name(o *dataplane.Object, entry *entry) bool {
	if e.origin == nil {
		return false
	}
	owner, named := e.origin.Owner(o)
	if named && (entry == nil || entry.claims.of(e.l.accounts[owner]) == nil) {
		e.named[owner] = append(e.named[owner], o)
	}
	return named
}

// nameless gives the orphans that may be anybody's: elements that nothing says whose
// they are, in containers of all Services.
func (e *estate) nameless() *dataplane.Fragment {
	var objects []dataplane.Object
	for _, o := range e.orphans {
		if o.Kind == dataplane.Element && !e.bound(o) {
			objects = append(objects, *o)
		}
	}
	return dataplane.NewFragment(service.Key{}, unborn, objects)
}

// bound reports whether an orphan names its Service, or lives in another orphan.
func (e *estate) bound(o *dataplane.Object) bool {
	if e.origin == nil {
		return false
	}
	if _, named := e.origin.Owner(o); named {
		return true
	}
	refs := e.origin.Refs(o)
	return len(refs) > 0 && e.orphans[refs[0]] != nil
}

// unborn is the age of a Service that only the kernel knows. Every Service that is known
// to exist outranks it.
var unborn = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// standing gives what the kernel has of an account as a fragment: what it wants and
// somebody has put there, what names it, and what those refer to. Nil when there is
// nothing.
func (e *estate) standing(a *account) *dataplane.Fragment {
	objects := e.wanted(a)
	taken := map[dataplane.ID]bool{}
	take := func(id dataplane.ID) {
		if o := e.orphans[id]; o != nil && !taken[id] {
			taken[id] = true
			objects = append(objects, *o)
		}
	}
	for _, o := range e.named[a.key] {
		taken[o.ID] = true
		objects = append(objects, *o)
	}
	for i := 0; i < len(objects); i++ { // it grows meanwhile
		e.l.steps++
		for _, ref := range e.refs(&objects[i]) {
			take(ref)
		}
		for _, part := range e.parts[objects[i].ID] {
			take(part)
		}
	}
	if len(objects) == 0 {
		return nil
	}
	created := unborn
	if a.latest != nil {
		created = a.latest.Created
	}
	return dataplane.NewFragment(a.key, created, objects)
}

// isOf reports whether what the kernel has is an account's: it says so, or it does not
// say and nobody else wins the object.
func (e *estate) isOf(there *dataplane.Object, a *account) bool {
	if e.origin != nil {
		if owner, named := e.origin.Owner(there); named {
			return owner == a.key
		}
	}
	winner := e.l.entries.get(there.ID).claims.winner()
	return winner == nil || winner.by == a
}

// wanted gives those of an account's objects that the kernel has, as it has them. An
// object of another Service is that one's, unless it is the same for both.
func (e *estate) wanted(a *account) (objects []dataplane.Object) {
	for _, f := range []*dataplane.Fragment{a.latest, a.applied} {
		wants := objectsOf(f)
		for i := range wants {
			e.l.steps++
			object := &wants[i]
			there := e.known(object)
			if there == nil {
				continue
			}
			if dataplane.Same(there, object) || e.isOf(there, a) {
				objects = append(objects, *there)
			}
		}
	}
	return objects
}

// known gives what the kernel has of an object; nil when that is nothing, or not
// known.
func (e *estate) known(object *dataplane.Object) *dataplane.Object {
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

func (e *estate) refs(o *dataplane.Object) []dataplane.ID {
	if len(o.Refs) == 0 && e.origin != nil {
		return e.origin.Refs(o)
	}
	return o.Refs
}

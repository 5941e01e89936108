package ledger

import (
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// Absent is a Service that exists and has not submitted. It outranks younger ones in what
// the kernel has of it, as if it had. Created is zero if its age is not known.
type Absent struct {
	Key     service.Key
	Created time.Time
}

// Adopt takes over what a former process left in the kernel. It is called once, after
// the first Observe, with the Services that exist and have not submitted. What
// already matches is applied, and returned as settled. For every other Service, what the
// kernel has counts as its last applied fragment: Hold falls back to it, and it stays for
// a Service that has not submitted. So after a restart no Service is served worse because
// it is refused or late.
//
// Origin names the owners of objects that no Service wants any more; it may be nil.
// Adopt walks all objects: it is called once at the start.
func (l *Ledger) Adopt(absent []Absent, origin dataplane.Origin) []dataplane.Contribution {
	contributions := make([]dataplane.Contribution, 0, len(l.pending))
	for a := range l.pending {
		contributions = append(contributions, a.contribution())
	}
	sortByKey(contributions)
	settled := l.settle(contributions)
	if len(l.pending) == 0 && len(absent) == 0 {
		return settled
	}
	found := l.newInventory(origin)
	if !found.any {
		return settled
	}
	for a := range l.pending {
		if a.key != service.Node && !a.latest.Gone {
			a.applied = found.present(a)
			a.adopted = a.applied != nil
			l.leftovers.await(a)
		}
	}
	for _, s := range absent {
		if l.accounts[s.Key] != nil {
			continue
		}
		a := &account{key: s.Key, adopted: true}
		if left := found.present(a); left != nil {
			if !s.Created.IsZero() {
				left.Created = s.Created
			}
			l.accounts[s.Key], a.applied = a, left
			l.fold(a, left)
			l.leftovers.await(a)
		}
	}
	if len(l.leftovers.awaited) > 0 {
		l.leftovers.account = &account{key: service.Key{Name: "a former process"}}
		l.fold(l.leftovers.account, found.unattributed())
	}
	return settled
}

// followWhatLanded adds to what a former process left of an account what has landed of its
// newest fragment since: frontends, what goes with them, and what these refer to. What was
// left may have been damaged by another program, or may be gone, and what serves again must
// not be taken back. It does nothing once a fragment was fully in force.
func (l *Ledger) followWhatLanded(a *account) {
	if a.whole() || l.layout != nil {
		return // where a layout composes objects, a write lands whole
	}
	m := &mended{l: l, a: a, objects: map[dataplane.ID]*dataplane.Object{}, newest: map[dataplane.ID]*dataplane.Object{}}
	for _, o := range objectsOf(a.applied) {
		m.objects[o.ID] = &o
	}
	for _, o := range objectsOf(a.latest) {
		m.newest[o.ID] = &o
	}
	for _, leads := range []bool{true, false} {
		for id := range m.newest {
			_, frontend := l.naming.Frontend(id)
			lead, led := l.naming.Lead(id)
			if leads && (frontend || m.objects[id] != nil) || !leads && led && m.objects[lead] != nil {
				m.take(id)
			}
		}
	}
	if len(m.objects) == 0 {
		return
	}
	objects := make([]dataplane.Object, 0, len(m.objects))
	for _, o := range m.objects {
		objects = append(objects, *o)
	}
	a.applied = dataplane.NewFragment(a.key, a.latest.Created, objects)
}

// mended is what a former process left of an account, while it is brought up to date.
type mended struct {
	l               *Ledger
	a               *account
	objects, newest map[dataplane.ID]*dataplane.Object
}

// take takes an object of the newest fragment if it has landed with all that it refers to. It
// reports whether the object is there to be referred to.
func (m *mended) take(id dataplane.ID) bool {
	m.l.steps++
	e, o := m.l.entries.get(id), m.newest[id]
	if o == nil || e == nil || e.unsure || !dataplane.Same(e.known, o) {
		return m.objects[id] != nil || e != nil && e.claims.other(m.a) != nil
	}
	for _, ref := range o.Refs() {
		if !m.take(ref) {
			return m.objects[id] != nil
		}
	}
	m.objects[id] = o
	return true
}

// leftovers are elements in the kernel that no Service wants any more and that may belong
// to any Service that a former process served. They stay until each of those is settled
// or gone.
type leftovers struct {
	account *account
	awaited map[*account]bool
}

// await adds an account that differs from what the kernel has of it.
func (r *leftovers) await(a *account) {
	if a.applied == nil {
		return
	}
	if r.awaited == nil {
		r.awaited = map[*account]bool{}
	}
	r.awaited[a] = true
}

// settleLeftovers removes the leftovers once no account is awaited.
func (l *Ledger) settleLeftovers(a *account) {
	r := &l.leftovers
	if !r.awaited[a] {
		return
	}
	if delete(r.awaited, a); len(r.awaited) == 0 {
		l.fold(r.account, nil)
		l.leftovers = leftovers{}
		l.compose() // so that Stats counts what is to go
	}
}

// Freeze holds the keys, and makes what the kernel has of them wanted. It is for Services
// of which the kernel refuses even what was applied before: nothing of theirs is written
// until Release or Restore. It walks all objects: it is the last resort after failures.
func (l *Ledger) Freeze(keys []service.Key, origin dataplane.Origin) {
	found := l.newInventory(origin)
	for _, key := range keys {
		if a := l.accounts[key]; a != nil {
			l.Hold(key)
			a.frozen, a.present = true, found.present(a)
			l.fold(a, a.present)
		}
	}
}

// Frozen reports whether a key is frozen.
func (l *Ledger) Frozen(key service.Key) bool {
	a := l.accounts[key]
	return a != nil && a.frozen
}

// Restore makes what was last applied of a frozen key wanted; a held key stays held.
func (l *Ledger) Restore(key service.Key) {
	a := l.accounts[key]
	if a == nil || !a.frozen || !a.held && a.latest != nil {
		return
	}
	a.frozen, a.present = false, nil
	l.fold(a, a.applied)
}

// inventory is what the kernel has, by owner.
type inventory struct {
	l      *Ledger
	origin dataplane.Origin
	// any is set if the kernel has anything at all.
	any bool
	// named has the objects that carry the name of a Service that does not claim them.
	// unclaimed has those that no Service claims; parts lists those of them that are in
	// another one.
	named     map[service.Key][]*dataplane.Object
	unclaimed map[dataplane.ID]*dataplane.Object
	parts     map[dataplane.ID][]dataplane.ID
	// elements are the elements of composed objects.
	elements map[dataplane.ID]*dataplane.Object
}

func (l *Ledger) newInventory(origin dataplane.Origin) *inventory {
	e := &inventory{l: l, origin: origin, unclaimed: map[dataplane.ID]*dataplane.Object{},
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
		e.unclaimed[o.ID] = o
		if e.name(o, nil) || origin == nil || o.Kind != dataplane.Element {
			continue
		}
		if refs := origin.Refs(o); len(refs) > 0 {
			e.parts[refs[0]] = append(e.parts[refs[0]], o.ID)
		}
	}
	return e
}

// name lists an object under the Service that it names, unless that one claims it. It
// reports whether the object names a Service.
func (e *inventory) name(o *dataplane.Object, entry *entry) bool {
	if e.origin == nil {
		return false
	}
	owner, named := e.origin.Owner(o)
	if named && (entry == nil || entry.claims.of(e.l.accounts[owner]) == nil) {
		e.named[owner] = append(e.named[owner], o)
	}
	return named
}

// unattributed returns the unclaimed elements that may belong to any Service.
func (e *inventory) unattributed() *dataplane.Fragment {
	var objects []dataplane.Object
	for _, o := range e.unclaimed {
		if o.Kind == dataplane.Element && !e.attributed(o) {
			objects = append(objects, *o)
		}
	}
	objects = e.close(objects, nil)
	return dataplane.NewFragment(service.Key{}, youngest, objects)
}

// attributed reports whether an unclaimed object names its Service, or is in one that a
// single Service wants or that is unclaimed, too.
func (e *inventory) attributed(o *dataplane.Object) bool {
	if e.origin == nil {
		return false
	}
	if _, named := e.origin.Owner(o); named {
		return true
	}
	refs := e.origin.Refs(o)
	if len(refs) == 0 {
		return false
	}
	if e.unclaimed[refs[0]] != nil {
		return true
	}
	in := e.l.entries.get(refs[0])
	return in != nil && in.claims.len() == 1 && in.claims.winner().by.key != service.Node
}

// youngest is the age of a Service that only the kernel knows: every other one outranks it.
var youngest = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// present returns what the kernel has of an account as a fragment: the objects that it
// wants, those that name it, and what those refer to, also if others want it. Nil if there
// is nothing.
func (e *inventory) present(a *account) *dataplane.Fragment {
	objects := append(e.wanted(a), e.ofName(a.key)...)
	if len(objects) == 0 {
		return nil
	}
	created := youngest
	if a.latest != nil {
		created = a.latest.Created
	}
	return dataplane.NewFragment(a.key, created, e.close(objects, a))
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
	for i := 0; i < len(objects); i++ { // it grows
		e.l.steps++
		for _, ref := range e.refs(&objects[i]) {
			take(ref)
		}
		for _, part := range e.parts[objects[i].ID] {
			take(part)
		}
	}
	return objects
}

// shared returns an object that an account refers to: as others want it, or as it is in the
// kernel if they do not. Nil if it is an element, or neither. What only others want may not
// be there yet: it is referred to by what is taken as they want it, and goes with that.
func (e *inventory) shared(id dataplane.ID, a *account) *dataplane.Object {
	entry := e.l.entries.get(id)
	if entry == nil {
		return nil
	}
	o := entry.known
	if other := entry.claims.other(a); other != nil {
		o = other.object
	} else if entry.unsure {
		return nil
	}
	if o == nil || o.Kind == dataplane.Element {
		return nil
	}
	return o
}

// bears reports whether an object in the kernel names an account as its owner.
func (e *inventory) bears(there *dataplane.Object, a *account) bool {
	if e.origin == nil {
		return false
	}
	owner, named := e.origin.Owner(there)
	return named && owner == a.key
}

// isOf reports whether an object in the kernel belongs to an account: it names the
// account, or it names none and no other account wins it.
func (e *inventory) isOf(there *dataplane.Object, a *account) bool {
	if e.origin != nil {
		if owner, named := e.origin.Owner(there); named {
			return owner == a.key
		}
	}
	winner := e.l.entries.get(there.ID).claims.winner()
	return winner == nil || winner.by == a
}

// wanted returns the account's objects that the kernel has, as they are there. An object
// of another Service is left out unless it is the same for both. So are shared objects
// that others of the account refer to: those that are there bring them along.
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
			if there == nil || targets[object.ID] && !e.bears(there, a) {
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

func (e *inventory) refs(o *dataplane.Object) []dataplane.ID {
	if len(o.Refs()) == 0 && e.origin != nil {
		return e.origin.Refs(o)
	}
	return o.Refs()
}

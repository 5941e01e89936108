// SPDX-License-Identifier: Apache-2.0

// Package ledger records, object by object, what is wanted in one domain's kernel and
// what is known to be there. It plans the batches that bring the two together and
// settles them by their receipts. The domain's aggregator owns it. It is pure: no
// goroutine, no lock, no clock.
//
// A failed write changes nothing that is wanted, so a failure loses nothing. After an unknown outcome the ledger marks
// the objects as unsure, so the next plan writes them again.
//
// One Service has all objects of a frontend (frontends): source.Cache admits it to the frontend before it is rendered.
// Objects that Services share have equal content, and stay until the last of these Services leaves (shared). Objects
// that a previous process left also stay while kept elements lead to them (retention).
package ledger

import (
	"net/netip"
	"slices"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// Ledger is the record of one domain. It is not safe for concurrent use.
type Ledger struct {
	// layout is nil if the writer can change single elements.
	layout dataplane.Layout
	// naming is never nil.
	naming   dataplane.Naming
	entries  index
	accounts map[service.Key]*account
	dirty    dirtyList
	// pending holds the accounts whose folded fragment has not been settled.
	pending map[*account]struct{}
	// frontends records which account claims the objects of each frontend.
	frontends frontends
	// retained has the entries to which kept elements lead.
	retained map[*entry]retention
	// leftovers are objects of a previous process that cannot be attributed.
	leftovers leftovers
	// searches are those in progress.
	searches []*Search
	// origin returns the references of objects that were read; nil before Adopt, and if the writer has none.
	origin  dataplane.Origin
	batches uint64
	// steps counts the objects that were visited. With it, tests prove that the cost
	// of a change does not grow with the number of Services.
	steps int
}

// New makes an empty ledger. The layout may be nil. So may the naming if objects have neither frontends nor endpoints,
// and the owner if no two Services want the same frontend.
func New(layout dataplane.Layout, naming dataplane.Naming, owner Owner) *Ledger {
	if naming == nil {
		naming = noNaming{}
	}
	if owner == nil {
		owner = func(service.Frontend) (service.Key, bool) { return service.Key{}, false }
	}
	return &Ledger{
		layout:    layout,
		naming:    naming,
		accounts:  map[service.Key]*account{},
		pending:   map[*account]struct{}{},
		retained:  map[*entry]retention{},
		frontends: frontends{owner: owner, tenures: map[service.Frontend]tenure{}},
	}
}

// noNaming is for objects without frontends and endpoints.
type noNaming struct{}

func (noNaming) Frontend(dataplane.ID) (f service.Frontend, ok bool) { return f, false }
func (noNaming) Stage(dataplane.ID) dataplane.Stage                  { return dataplane.StageNone }
func (noNaming) Sends(*dataplane.Object, func(netip.AddrPort))       {}

// account is the record of one key.
type account struct {
	key service.Key
	// latest is the newest fragment seen.
	latest *dataplane.Fragment
	// folded is the fragment whose objects are claimed now: latest, or applied
	// while the key is held.
	folded *dataplane.Fragment
	// applied is the last fragment that was fully in the kernel. Before the first one, it has what a previous process
	// left there (Adopt) and what has landed since (Hold); nil for nothing. If the kernel rejects applied as well, what
	// the kernel has takes its place (Freeze).
	applied *dataplane.Fragment
	stance  stance
	// adopted is set if applied has what the kernel had, and not what this process brought there (Adopt, Freeze).
	adopted bool
	// shrunk is set if an element has left a composed object since the last
	// settlement.
	shrunk bool
	// pending is set while folded is not settled.
	pending *pending
	// lost are the frontends of folded that another account has; nil for none.
	lost map[service.Frontend]struct{}
}

// stance is why folded is what it is.
type stance uint8

const (
	// newest: it is the newest fragment.
	newest stance = iota
	// found: it was found in the kernel, and the key has not submitted.
	found
	// held: it is the last applied one, until Release.
	held
)

// keeps reports whether an account wants its previous objects, not those of its newest fragment.
func (a *account) keeps() bool { return a.stance != newest }

// pending describes the fragments of an account since the last settlement: their earliest
// times, and a trace that covers all of them.
type pending struct {
	trigger, received time.Time
	trace             dataplane.Trace
}

// owe marks the account as pending and keeps the earliest times.
func (a *account) owe() {
	if a.pending == nil {
		a.pending = &pending{}
	}
	p := a.pending
	p.trigger = dataplane.Earliest(p.trigger, a.latest.Trigger)
	p.received = dataplane.Earliest(p.received, a.latest.Received)
	p.trace = a.latest.Trace.Since(p.trace)
}

// whole reports whether applied is a fragment of this process, which was fully in the kernel.
func (a *account) whole() bool {
	return a.applied != nil && a.applied.Revision != service.Revision{}
}

// holds reports whether a fragment has an object of this identity.
func holds(f *dataplane.Fragment, id dataplane.ID) bool {
	_, found := slices.BinarySearchFunc(objectsOf(f), id, func(o dataplane.Object, id dataplane.ID) int { return o.ID.Compare(id) })
	return found
}

// claims reports whether an account makes a claim for an object.
func (l *Ledger) claims(a *account, id dataplane.ID) bool {
	return a != nil && holds(a.folded, id) && !l.lacks(a, id)
}

// objectsOf returns a fragment's objects; a nil fragment has none.
func objectsOf(f *dataplane.Fragment) []dataplane.Object {
	if f == nil {
		return nil
	}
	return f.Objects
}

// contribution returns the contribution of a pending account to a batch.
func (a *account) contribution() dataplane.Contribution {
	return dataplane.Contribution{Key: a.key, Revision: a.folded.Revision,
		Trigger: a.pending.trigger, Received: a.pending.received, Trace: a.pending.trace}
}

// Want takes a fragment. It reports false and changes nothing if the fragment is older than the last one of its key:
// the late output of a previous incarnation. A held key stays held.
func (l *Ledger) Want(f *dataplane.Fragment) bool {
	a := l.accounts[f.Key]
	if a == nil {
		a = &account{key: f.Key}
		l.accounts[f.Key] = a
	}
	if a.latest != nil && f.Revision.Compare(a.latest.Revision) < 0 {
		return false
	}
	a.latest = f
	if a.stance == held {
		l.review(a)
		return true
	}
	l.fold(a, f, newest)
	l.owe(a)
	return true
}

// Hold makes the last applied fragment of a key wanted again, instead of its newest one, until Release. If no fragment
// was fully applied yet, that is what a previous process left, and what has landed since. So holding a Service never
// removes the objects that serve it.
func (l *Ledger) Hold(key service.Key) {
	a := l.accounts[key]
	if a == nil || a.stance == held || a.latest == nil {
		return
	}
	l.followWhatLanded(a)
	l.fold(a, a.applied, held)
	a.pending = nil
	delete(l.pending, a)
}

// Withhold withdraws the landed objects of a held key that was never fully applied, and of which no previous process
// left anything. It reports whether there were any.
func (l *Ledger) Withhold(key service.Key) bool {
	a := l.accounts[key]
	if a == nil || a.stance != held || a.adopted || a.whole() || a.applied == nil {
		return false
	}
	a.applied = nil
	l.fold(a, nil, held)
	return true
}

// Release makes a held key's newest fragment wanted again.
func (l *Ledger) Release(key service.Key) {
	a := l.accounts[key]
	if a == nil || a.stance != held {
		return
	}
	l.fold(a, a.latest, newest)
	l.owe(a)
}

// Held reports whether a key is held.
func (l *Ledger) Held(key service.Key) bool {
	a := l.accounts[key]
	return a != nil && a.stance == held
}

// Pending reports whether a key's newest fragment is wanted, not held, and not fully in
// the kernel.
func (l *Ledger) Pending(key service.Key) bool {
	a := l.accounts[key]
	return a != nil && a.pending != nil
}

// Replaces reports whether a key's newest fragment is to replace one that was fully applied, so
// that Hold falls back to that one.
func (l *Ledger) Replaces(key service.Key) bool {
	a := l.accounts[key]
	return a != nil && a.pending != nil && a.whole()
}

// Differs reports whether an object is not, or not certainly, in the kernel as wanted.
func (l *Ledger) Differs(id dataplane.ID) bool {
	e := l.entries.get(id)
	return e != nil && e.dirty
}

// Latest returns the revision of a key's newest fragment.
func (l *Ledger) Latest(key service.Key) service.Revision {
	if a := l.accounts[key]; a != nil && a.latest != nil {
		return a.latest.Revision
	}
	return service.Revision{}
}

// Stats are sizes for health and metrics.
type Stats struct {
	// Keys and Objects count accounts and wanted or known objects.
	Keys, Objects int
	// Dirty objects differ from what is known; Pending keys await an ack.
	Dirty, Pending int
}

// Stats returns the present sizes.
func (l *Ledger) Stats() Stats {
	return Stats{Keys: len(l.accounts), Objects: l.entries.count, Dirty: l.dirty.count,
		Pending: len(l.pending)}
}

func (l *Ledger) owe(a *account) {
	a.owe()
	l.pending[a] = struct{}{}
}

// fold replaces the present fragment of an account, and its claims, by the next one.
func (l *Ledger) fold(a *account, next *dataplane.Fragment, stance stance) {
	folded, was, retained := a.folded, a.claimed(), a.retains()
	a.folded, a.stance = next, stance
	if a.retains() {
		l.retain(a, next.Objects, 1)
	}
	if folded == nil || next == nil || folded.Digest != next.Digest || retained != a.retains() {
		l.exchange(a, was, a.claimed())
	}
	if retained {
		l.retain(a, folded.Objects, -1)
	}
	l.review(a)
}

// exchange replaces claims. Both object lists are sorted by ID, so one walk over the two finds
// the differences. The walk is as long as the Service, not the cluster.
func (l *Ledger) exchange(a *account, was, will []dataplane.Object) {
	for len(was) > 0 || len(will) > 0 {
		l.steps++
		order := 0
		switch {
		case len(was) == 0:
			order = 1
		case len(will) == 0:
			order = -1
		default:
			order = was[0].ID.Compare(will[0].ID)
		}
		switch {
		case order < 0:
			l.withdraw(a, &was[0])
			was = was[1:]
		case order > 0:
			l.claim(a, &will[0])
			will = will[1:]
		default:
			if !dataplane.Same(&was[0], &will[0]) {
				l.replace(a, &will[0])
			} else {
				l.repoint(a, &will[0])
			}
			was, will = was[1:], will[1:]
		}
	}
}

// repoint makes an unchanged claim refer to the new fragment's object, so that the old
// fragment can be freed.
func (l *Ledger) repoint(a *account, object *dataplane.Object) {
	e := l.entries.get(object.ID)
	if e == nil || e.claims.shared != nil || e.claims.sole.by != a || e.claims.sole.object == nil {
		return // shared, or another account has the frontend
	}
	e.claims.sole.object = object
	if e.wanted != nil {
		if dataplane.Same(e.known, e.wanted) && !e.unsure {
			e.known = object
		}
		e.wanted = object
	}
}

// claim makes a claim, unless another account has the frontend.
func (l *Ledger) claim(a *account, object *dataplane.Object) {
	if f, ok := l.naming.Frontend(object.ID); ok && !l.enter(a, f) {
		return
	}
	e := l.entries.demand(object.ID)
	e.claims.add(claim{a, object})
	l.settleClaims(object, e)
}

// withdraw takes a claim back, unless another account has the frontend.
func (l *Ledger) withdraw(a *account, object *dataplane.Object) {
	if f, ok := l.naming.Frontend(object.ID); !ok || l.leave(a, f) {
		l.drop(a, object)
	}
}

// replace changes a claim, unless another account has the frontend.
func (l *Ledger) replace(a *account, will *dataplane.Object) {
	if f, ok := l.naming.Frontend(will.ID); ok && l.frontends.tenures[f].by != a {
		return
	}
	e := l.entries.demand(will.ID)
	e.claims.replace(claim{a, will})
	l.settleClaims(will, e)
}

// drop takes a claim back.
func (l *Ledger) drop(a *account, object *dataplane.Object) {
	e := l.entries.get(object.ID)
	if e == nil {
		return
	}
	a.shrunk = a.shrunk || (l.layout != nil && object.Kind == dataplane.Element)
	e.claims.drop(a)
	l.settleClaims(object, e)
}

// settleClaims makes the winner's object the wanted one.
func (l *Ledger) settleClaims(example *dataplane.Object, e *entry) {
	if l.layout == nil || example.Kind != dataplane.Element {
		l.decide(example.ID, e, e.claims.sole.object)
		return
	}
	winner := e.claims.winner()
	if winner == nil {
		l.layout.Remove(example.ID)
		l.entries.remove(example.ID, e)
		return
	}
	owner := service.Node
	if winner.by != nil {
		owner = winner.by.key
	}
	l.layout.Put(winner.object, owner)
}

// touch updates the dirty list after a change of an entry, and removes an idle entry.
func (l *Ledger) touch(id dataplane.ID, e *entry) {
	l.dirty.note(e)
	for _, s := range l.searches {
		s.look(e)
	}
	if e.idle() && l.retained[e].references == 0 {
		l.entries.remove(id, e)
	} else {
		l.entries.name(id, e)
	}
}

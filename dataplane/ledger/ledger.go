package ledger

import (
	"slices"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// Ledger is the account of one domain. One goroutine at a time.
type Ledger struct {
	// layout is nil in domains that can change single elements.
	layout dataplane.Layout
	// naming is never nil.
	naming   dataplane.Naming
	entries  index
	accounts map[service.Key]*account
	dirty    dirtyList
	// pending holds the accounts whose folded fragment has not been settled.
	pending map[*account]struct{}
	// shadows holds the frontends that Services lost to each other.
	shadows shadows
	// following knows what Services do not want as long as another one has what it
	// goes with.
	following following
	// remains are what a former process has left and nobody accounts for.
	remains remains
	batches uint64
	// steps counts the objects that were looked at, so that tests can prove
	// that the cost of a change does not grow with the number of Services.
	steps int
}

// New makes an empty ledger. The layout may be nil, and so may the naming where no
// object is a frontend's or goes with another.
func New(layout dataplane.Layout, naming dataplane.Naming) *Ledger {
	if naming == nil {
		naming = nameless{}
	}
	return &Ledger{
		layout:   layout,
		naming:   naming,
		entries:  newIndex(),
		accounts: map[service.Key]*account{},
		pending:  map[*account]struct{}{},
	}
}

// nameless is the naming of objects that are all on their own.
type nameless struct{}

func (nameless) Frontend(dataplane.ID) (f dataplane.Frontend, ok bool) { return f, false }
func (nameless) Lead(dataplane.ID) (lead dataplane.ID, ok bool)        { return lead, false }
func (nameless) Leads(dataplane.ID) bool                               { return false }
func (nameless) LedLead(dataplane.ID) (lead dataplane.ID, ok bool)     { return lead, false }

// Want folds a fragment in. It reports false, and changes nothing, for a
// fragment that is older than one already seen for its key: the late output of
// a former incarnation. A held key stays held.
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
	if !a.held {
		l.fold(a, f)
		l.owe(a)
	}
	return true
}

// Hold takes a key's newest fragment back out: what was last in force becomes
// wanted again, until Release. What holds back a Service never takes away what
// serves it.
func (l *Ledger) Hold(key service.Key) {
	a := l.accounts[key]
	if a == nil || a.held || a.latest == nil {
		return
	}
	a.held = true
	l.fold(a, a.fallback())
	a.pending = false
	delete(l.pending, a)
}

// Release wants a held key's newest fragment again.
func (l *Ledger) Release(key service.Key) {
	a := l.accounts[key]
	if a == nil || !a.held {
		return
	}
	a.held = false
	l.fold(a, a.latest)
	l.owe(a)
}

// Held reports whether a key is held.
func (l *Ledger) Held(key service.Key) bool {
	a := l.accounts[key]
	return a != nil && a.held
}

// Pending reports whether a key's newest fragment is wanted, not held, and not wholly
// in the kernel.
func (l *Ledger) Pending(key service.Key) bool {
	a := l.accounts[key]
	return a != nil && a.pending
}

// Differs reports whether an object is known to be other than wanted, or not known.
func (l *Ledger) Differs(id dataplane.ID) bool {
	e := l.entries.get(id)
	return e != nil && e.dirty
}

// Latest gives the revision of the newest fragment seen for a key.
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
	// Dirty objects differ from what is known; Pending keys await a verdict.
	Dirty, Pending int
	// Shadowed counts, over all Services, the frontends that another Service
	// serves. Objects that Services share are no loss to anybody.
	Shadowed int
}

// Stats gives the present sizes.
func (l *Ledger) Stats() Stats {
	return Stats{Keys: len(l.accounts), Objects: l.entries.count, Dirty: l.dirty.count,
		Pending: len(l.pending), Shadowed: l.shadows.count}
}

// Steps is the number of objects looked at so far, over all calls.
func (l *Ledger) Steps() int { return l.steps }

func (l *Ledger) owe(a *account) {
	a.owe()
	l.pending[a] = struct{}{}
}

// fold exchanges the claims of an account's present fragment for those of the
// next one. Both object lists are sorted by ID, so one walk over the two finds
// the difference; its length is the size of the Service, not of the cluster.
func (l *Ledger) fold(a *account, next *dataplane.Fragment) {
	was, will := objectsOf(a.folded), objectsOf(next)
	same := a.folded != nil && next != nil && a.folded.Digest == next.Digest
	aged := a.folded != nil && next != nil && !a.folded.Created.Equal(next.Created)
	a.folded = next
	if next != nil {
		a.created = next.Created
	}
	if same {
		return
	}
	if a.yields {
		l.following.add(a)
	}
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
			if aged || !dataplane.Same(&was[0], &will[0]) {
				l.claim(a, &will[0])
			} else {
				l.adopt(a, &will[0])
			}
			was, will = was[1:], will[1:]
		}
	}
	l.reconsider()
}

// adopt lets an unchanged claim point at the new fragment's object, so that the
// old fragment can be freed.
func (l *Ledger) adopt(a *account, object *dataplane.Object) {
	e := l.entries.get(object.ID)
	if e == nil {
		return // yielded
	}
	c := e.claims.of(a)
	if c == nil {
		return
	}
	c.object = object
	if c == e.claims.winner() && e.wanted != nil {
		if dataplane.Same(e.known, e.wanted) && !e.unsure {
			e.known = object
		}
		e.wanted = object
	}
}

func (l *Ledger) claim(a *account, object *dataplane.Object) {
	e := l.entries.demand(object.ID)
	l.exchange(a, object.ID, &e.claims, object)
	l.settleClaims(object, e)
}

func (l *Ledger) withdraw(a *account, object *dataplane.Object) {
	e := l.entries.get(object.ID)
	if e == nil {
		return
	}
	a.shrunk = a.shrunk || (l.layout != nil && object.Kind == dataplane.Element)
	l.exchange(a, object.ID, &e.claims, nil)
	l.settleClaims(object, e)
}

// settleClaims makes the winner's object the wanted one.
func (l *Ledger) settleClaims(example *dataplane.Object, e *entry) {
	winner := e.claims.winner()
	if l.layout != nil && example.Kind == dataplane.Element {
		if winner == nil {
			l.layout.Remove(example.ID)
			l.entries.remove(example.ID)
		} else {
			l.layout.Put(winner.object, winner.by.key)
		}
		return
	}
	e.wanted = nil
	if winner != nil {
		e.wanted = winner.object
	}
	l.touch(example.ID, e)
}

// touch takes note of an entry that has changed, and closes accounts that are
// idle.
func (l *Ledger) touch(id dataplane.ID, e *entry) {
	l.dirty.note(id, e)
	if e.idle() {
		l.entries.remove(id)
	}
}

// compose lets the layout fold changed elements into the objects that are
// written.
func (l *Ledger) compose() {
	if l.layout == nil {
		return
	}
	for _, c := range l.layout.Flush() {
		l.steps++
		if c.Object == nil && l.entries.get(c.ID) == nil {
			continue
		}
		e := l.entries.demand(c.ID)
		e.wanted = c.Object
		l.touch(c.ID, e)
	}
}

// Plan gives the batch that brings the kernel to what is wanted, with the
// fragments that it settles. Nil means that there is nothing to write and
// nothing to settle; a batch without changes only settles.
func (l *Ledger) Plan() *dataplane.Batch {
	l.compose()
	if l.dirty.count == 0 && len(l.pending) == 0 {
		return nil
	}
	l.batches++
	batch := &dataplane.Batch{Number: l.batches, Changes: make([]dataplane.Change, 0, l.dirty.count)}
	for _, d := range l.dirty.sorted() {
		l.steps++
		e := d.entry
		batch.Changes = append(batch.Changes, dataplane.Change{
			ID: d.id, Before: e.known, After: e.wanted, Owner: e.owner(), Unsure: e.unsure})
	}
	batch.Contributions = make([]dataplane.Contribution, 0, len(l.pending))
	for a := range l.pending {
		batch.Contributions = append(batch.Contributions, a.contribution())
	}
	slices.SortFunc(batch.Contributions, func(a, b dataplane.Contribution) int { return a.Key.Compare(b.Key) })
	return batch
}

// PlanControl gives a batch of all that is wanted, and of the scaffold also where it is
// known to be there. With the suspects of a refusal held it finds out whether the
// kernel refuses the node itself.
func (l *Ledger) PlanControl() *dataplane.Batch {
	l.compose()
	if node := l.accounts[service.Node]; node != nil {
		objects := objectsOf(node.folded)
		for i := range objects {
			id := objects[i].ID
			if e := l.entries.get(id); e != nil && e.wanted != nil {
				e.unsure = true
				l.touch(id, e)
			}
		}
	}
	batch := l.Plan()
	if batch != nil {
		batch.Control = true
	}
	return batch
}

// Settle takes note of a receipt and gives the contributions that are wholly in
// the kernel now, whatever has become of the others. Nothing may be folded between
// Plan and Settle of one batch: its owner leaves newer fragments in the mailbox
// meanwhile.
func (l *Ledger) Settle(batch *dataplane.Batch, receipt dataplane.Receipt) []dataplane.Contribution {
	for i := range batch.Changes {
		l.steps++
		change := &batch.Changes[i]
		e := l.entries.get(change.ID)
		if e == nil {
			continue
		}
		if receipt.Outcome == dataplane.Landed {
			e.known, e.unsure = change.After, false
		} else if object, certain := receipt.Certain[change.ID]; certain {
			e.known, e.unsure = object, false
			if dataplane.Same(e.wanted, object) {
				e.known = e.wanted // share the text
			}
		} else {
			e.unsure = true
		}
		l.touch(change.ID, e)
	}
	l.dirty.reset()
	return l.settle(batch.Contributions)
}

// emptied gives an empty set in place of one that held so many. A map keeps the
// room of its largest times, and to walk over it costs that room: after a cold
// start each small change would pay for all Services.
func emptied[K comparable](set map[K]struct{}, held int) map[K]struct{} {
	const keepMax = 1024
	if held > keepMax {
		return map[K]struct{}{}
	}
	clear(set)
	return set
}

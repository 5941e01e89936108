package ledger

import (
	"strings"

	"github.com/sluice-proxy/sluice/dataplane"
)

// following makes sure that an object that goes with a lead (dataplane.Naming) belongs
// to the Service that has the lead: a Service that is outranked at the lead makes no
// claim for what goes with it. While no two Services want the same lead, it is empty.
type following struct {
	// waiting has the accounts that are outranked at a lead. One that claims the lead is not
	// listed: it is noticed when it wins. It is listed as long as the winner has not
	// submitted, because what goes with the lead may stay until then (together).
	waiting map[dataplane.ID]map[*account]struct{}
	// affected has the accounts whose claims must be reconsidered, in order.
	affected []*account
	queued   map[*account]struct{}
}

// affects notes the accounts to reconsider after a change of a's claim for a lead. Those
// that lose before and after are not among them.
func (l *Ledger) affects(a *account, id dataplane.ID, before, after position) {
	f := &l.following
	if _, follows := l.naming.Lead(id); follows || after.loses {
		f.add(a)
	}
	if before.winner != after.winner {
		f.add(before.winner)
		f.add(after.winner)
	}
	if before.winner != a && after.winner != a {
		return
	}
	for waiting := range f.waiting[id] {
		f.add(waiting)
	}
	led, ok := l.naming.LedLead(id)
	if !ok {
		return
	}
	if e := l.entries.get(led); e != nil {
		if winner := e.claims.winner(); winner != nil {
			f.add(winner.by)
		}
	}
}

func (f *following) add(a *account) {
	if a == nil {
		return
	}
	if _, queued := f.queued[a]; queued {
		return
	}
	if f.queued == nil {
		f.queued = map[*account]struct{}{}
	}
	f.queued[a] = struct{}{}
	f.affected = append(f.affected, a)
}

// reconsider updates the claims of the affected accounts, and of those that these affect
// in turn. It terminates because a claim depends only on older Services and on leads,
// and no lead goes with itself.
func (l *Ledger) reconsider() {
	f := &l.following
	for len(f.affected) > 0 {
		a := f.affected[0]
		f.affected = f.affected[1:]
		delete(f.queued, a)
		l.follow(a)
	}
	f.affected = nil
}

// follow makes or withdraws the claims of one account for what goes with leads.
func (l *Ledger) follow(a *account) {
	f := &l.following
	for _, lead := range a.waits {
		delete(f.waiting[lead], a)
		if len(f.waiting[lead]) == 0 {
			delete(f.waiting, lead)
		}
	}
	a.yields, a.waits = false, nil
	objects := objectsOf(a.folded)
	for i := range objects {
		l.steps++
		object := &objects[i]
		yields := l.yields(a, object)
		if !yields && l.naming.Leads(object.ID) && l.outranked(a, object.ID) {
			a.yields = true // objects that go with it may come later
		}
		e := l.entries.get(object.ID)
		claimed := e != nil && e.claims.of(a) != nil
		switch {
		case yields && claimed:
			l.withdraw(a, object)
		case !yields && !claimed:
			l.claim(a, object)
		}
	}
}

// wait notes a lead at which an account is outranked.
func (l *Ledger) wait(a *account, lead dataplane.ID) {
	a.yields = true
	if cs := &l.entries.get(lead).claims; cs.of(a) != nil && !cs.winner().by.left {
		return
	}
	f := &l.following
	if _, known := f.waiting[lead][a]; known {
		return
	}
	lead.Name = strings.Clone(lead.Name) // the fragment may be freed before the account
	if f.waiting == nil {
		f.waiting = map[dataplane.ID]map[*account]struct{}{}
	}
	if f.waiting[lead] == nil {
		f.waiting[lead] = map[*account]struct{}{}
	}
	f.waiting[lead][a] = struct{}{}
	a.waits = append(a.waits, lead)
}

// yields reports whether an account is outranked at the lead of an object or at that lead's
// own lead, and notes where it waits.
func (l *Ledger) yields(a *account, object *dataplane.Object) (yields bool) {
	for lead, ok := l.naming.Lead(object.ID); ok; lead, ok = l.naming.Lead(lead) {
		if l.outranked(a, lead) {
			l.wait(a, lead)
			yields = yields || !l.together(object, lead)
		}
	}
	return yields
}

// together reports whether the kernel was found with a lead of one account and with an object
// of another that goes with it. They stay together until the one with the lead submits: the
// ages, which decide otherwise, may have changed since.
func (l *Ledger) together(object *dataplane.Object, lead dataplane.ID) bool {
	e := l.entries.get(object.ID)
	return e != nil && !e.unsure && dataplane.Same(e.known, object) && l.entries.get(lead).claims.winner().by.left
}

// outranked reports whether an object belongs to another account that outranks this
// one, whether or not this one claims it.
func (l *Ledger) outranked(a *account, id dataplane.ID) bool {
	e := l.entries.get(id)
	if e == nil {
		return false
	}
	winner := e.claims.winner()
	return winner != nil && winner.by != a && winner.outranks(claim{by: a, object: &dataplane.Object{ID: id}})
}

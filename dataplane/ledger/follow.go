package ledger

import (
	"strings"

	"github.com/sluice-proxy/sluice/dataplane"
)

// following keeps what goes with another object (dataplane.Naming) with the Service
// that has that one: a Service that somebody outranks at the lead makes no claim for
// what follows. As long as no two Services want one lead it holds nothing.
type following struct {
	// waiting holds the accounts that yield at a lead which they do not claim
	// themselves. Who claims it is told when it wins: many may want one lead.
	waiting map[dataplane.ID]map[*account]struct{}
	// upset holds the accounts for which something may have changed, in the order
	// in which it did.
	upset  []*account
	queued map[*account]struct{}
}

// upsetBy notes who has to be looked at again when a's claim for a lead has changed.
// Who loses before and after as well is not among them.
func (l *Ledger) upsetBy(a *account, id dataplane.ID, before, after place) {
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
	f.upset = append(f.upset, a)
}

// reconsider looks at those for whom something may have changed, and those for whom
// it does in turn. It ends since a claim depends on those of older Services and of
// leads alone, and no lead follows itself.
func (l *Ledger) reconsider() {
	f := &l.following
	for len(f.upset) > 0 {
		a := f.upset[0]
		f.upset = f.upset[1:]
		delete(f.queued, a)
		l.follow(a)
	}
	f.upset = nil
}

// follow makes the claims of one account for what follows, or withdraws them.
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
		lead, yields := l.yields(a, object.ID)
		if yields {
			l.wait(a, lead)
		} else if l.naming.Leads(object.ID) && l.outranked(a, object.ID) {
			a.yields = true // what goes with it may come later
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

// wait takes note of a lead at which an account yields.
func (l *Ledger) wait(a *account, lead dataplane.ID) {
	a.yields = true
	if l.entries.get(lead).claims.of(a) != nil {
		return
	}
	f := &l.following
	if _, known := f.waiting[lead][a]; known {
		return
	}
	lead.Name = strings.Clone(lead.Name) // the fragment can go before the account
	if f.waiting == nil {
		f.waiting = map[dataplane.ID]map[*account]struct{}{}
	}
	if f.waiting[lead] == nil {
		f.waiting[lead] = map[*account]struct{}{}
	}
	f.waiting[lead][a] = struct{}{}
	a.waits = append(a.waits, lead)
}

// yields reports whether somebody outranks an account at the lead of an object, or at
// the lead's own, and at which: the last of them.
func (l *Ledger) yields(a *account, id dataplane.ID) (at dataplane.ID, yields bool) {
	for lead, ok := l.naming.Lead(id); ok; lead, ok = l.naming.Lead(lead) {
		if l.outranked(a, lead) {
			at, yields = lead, true
		}
	}
	return at, yields
}

// outranked reports whether an object is that of another account, which outranks this
// one, whether this one claims it or not.
func (l *Ledger) outranked(a *account, id dataplane.ID) bool {
	e := l.entries.get(id)
	if e == nil {
		return false
	}
	winner := e.claims.winner()
	return winner != nil && winner.by != a && winner.outranks(claim{by: a})
}

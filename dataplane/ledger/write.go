// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"slices"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// compose makes the layout fold changed elements into composed objects.
func (l *Ledger) compose() {
	if l.layout == nil {
		return
	}
	for _, c := range l.layout.Flush() {
		l.steps++
		if c.Object == nil && l.entries.get(c.ID) == nil {
			continue
		}
		l.decide(c.ID, l.entries.demand(c.ID), c.Object)
	}
}

// Plan returns the batch that makes the kernel as wanted, with the fragments that it
// settles. Nil means that there is nothing to write and nothing to settle. A batch
// without changes only settles.
func (l *Ledger) Plan() *dataplane.Batch {
	l.compose()
	if l.dirty.count == 0 && len(l.pending) == 0 {
		return nil
	}
	if l.dirty.count > 0 {
		l.batches++
	}
	batch := &dataplane.Batch{Number: l.batches, Changes: make([]dataplane.Change, 0, l.dirty.count)}
	for _, e := range l.dirty.dirty() {
		l.steps++
		batch.Changes = append(batch.Changes, dataplane.Change{
			ID: l.entries.id(e), Before: e.known, After: e.wanted, Owner: l.blamed(e), Unsure: e.unsure})
	}
	slices.SortFunc(batch.Changes, func(a, b dataplane.Change) int { return a.ID.Compare(b.ID) })
	batch.Contributions = make([]dataplane.Contribution, 0, len(l.pending))
	for a := range l.pending {
		batch.Contributions = append(batch.Contributions, a.contribution())
	}
	sortByKey(batch.Contributions)
	return batch
}

// PlanPart returns a batch with the part of Plan that cut chooses.
func (l *Ledger) PlanPart(cut func([]dataplane.Change) []dataplane.Change) *dataplane.Batch {
	batch := l.Plan()
	if batch != nil {
		all := len(batch.Changes)
		batch.Changes = cut(batch.Changes)
		batch.Left = all - len(batch.Changes)
	}
	return batch
}

// blamed returns the Service to which a rejection of an object is attributed: of the Services that share it, one with
// an unsettled fragment, if there is one. If another Service took the frontend of a removed object, the removal belongs
// to that Service, so that a write divided by Services contains it together with the additions.
func (l *Ledger) blamed(e *entry) service.Key {
	if by := e.claims.last(); by != nil && e.wanted == nil {
		if f, ok := l.naming.Frontend(l.entries.id(e)); ok && l.frontends.tenures[f].by != nil {
			return l.frontends.tenures[f].by.key
		}
	}
	if e.claims.shared == nil || e.claims.sole.by != nil {
		return e.owner()
	}
	var found *account
	for a := range l.pending {
		l.steps++
		if (found == nil || a.key.Compare(found.key) < 0) && l.claims(a, l.entries.id(e)) {
			found = a
		}
	}
	if found == nil {
		return e.owner()
	}
	return found.key
}

func sortByKey(contributions []dataplane.Contribution) {
	slices.SortFunc(contributions, func(a, b dataplane.Contribution) int {
		return a.Key.Compare(b.Key)
	})
}

// PlanWitness returns a batch of all differences and of the whole scaffold. While the suspects of a failed write are
// held, writing it shows whether the node takes rules that it took before.
func (l *Ledger) PlanWitness() *dataplane.Batch {
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
	return l.Plan()
}

// Settle takes a receipt. It returns the contributions that are fully in the kernel now,
// regardless of the other contributions. Nothing may be folded between Plan and Settle of one
// batch: newer fragments stay in the mailbox.
func (l *Ledger) Settle(batch *dataplane.Batch,
	receipt dataplane.Receipt) []dataplane.Contribution {
	for i := range batch.Changes {
		l.steps++
		change := &batch.Changes[i]
		e := l.entries.get(change.ID)
		if e == nil {
			continue
		}
		if object, certain := receipt.Certain[change.ID]; receipt.Outcome == dataplane.Landed {
			e.known, e.unsure = change.After, false
		} else if certain {
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

// settle settles and returns the contributions that are fully in the kernel. Each is
// checked separately: a Service that the kernel rejects does not delay the acks of
// others.
func (l *Ledger) settle(contributions []dataplane.Contribution) []dataplane.Contribution {
	whole := contributions
	if l.dirty.count > 0 {
		whole = l.applied(contributions)
	}
	for i := range whole {
		a := l.accounts[whole[i].Key]
		a.applied, a.pending, a.shrunk = a.folded, nil, false
		l.settleLeftovers(a)
		if a.folded.Gone {
			delete(l.accounts, a.key)
		}
		delete(l.pending, a)
	}
	if len(l.pending) == 0 {
		l.pending = emptied(l.pending, len(whole))
	}
	return whole
}

// applied returns the contributions without differences: what they want is there, what
// they no longer want is gone, and the composed objects that lead to their elements are
// right. Its cost is the size of the contributors, and it is needed only while
// something differs.
func (l *Ledger) applied(contributions []dataplane.Contribution) []dataplane.Contribution {
	leaving, composing := map[*account]bool{}, false
	for _, e := range l.dirty.listed {
		l.steps++
		switch last := e.claims.last(); {
		case !e.dirty, e.claims.len() > 0:
		case last != nil:
			leaving[last] = true
		default:
			composing = composing || l.layout != nil
		}
	}
	var whole []dataplane.Contribution
	for _, c := range contributions {
		a := l.accounts[c.Key]
		if !leaving[a] && !(composing && a.shrunk) && l.stands(a, composing) {
			whole = append(whole, c)
		}
	}
	return whole
}

// stands reports whether everything that an account claims is in the kernel.
func (l *Ledger) stands(a *account, composing bool) bool {
	objects := objectsOf(a.folded)
	for i := range objects {
		l.steps++
		object := &objects[i]
		switch e := l.entries.get(object.ID); {
		case l.lacks(a, object.ID):
		case e == nil || e.dirty:
			return false
		case composing && object.Kind == dataplane.Element && !l.reached(object.ID):
			return false
		}
	}
	return true
}

// reached reports whether the composed objects that lead to an element are in the
// kernel.
func (l *Ledger) reached(id dataplane.ID) bool {
	for _, at := range l.layout.Path(id) {
		if e := l.entries.get(at); e != nil && e.dirty {
			return false
		}
	}
	return true
}

// emptied returns an empty set in place of one that had held elements. A map never shrinks, and walking it costs its
// largest size: after a cold start each small change would pay for all Services.
func emptied[K comparable](set map[K]struct{}, held int) map[K]struct{} {
	const keepMax = 1024
	if held > keepMax {
		return map[K]struct{}{}
	}
	clear(set)
	return set
}

package ledger

import (
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// Absent is a Service that exists and has not submitted. It outranks younger ones in what
// the kernel has of it, as if it had. Created is zero if its age is not known, or does not count; then
// all others outrank it.
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
	l.origin = origin
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

// inheritance is a shared object that has passed to an account which wants it as it was found,
// while the kernel has it as others wanted it since.
type inheritance struct {
	heir   *account
	object *dataplane.Object
}

// bequeath notes an inheritance if the new winner of a shared object would take back what
// serves it.
func (l *Ledger) bequeath(e *entry, winner *claim) {
	if !winner.by.left || winner.object.Kind != dataplane.Owned || e.wanted == nil {
		return
	}
	if dataplane.Same(e.known, e.wanted) && !dataplane.Same(e.wanted, winner.object) {
		l.inheritances = append(l.inheritances, inheritance{winner.by, e.wanted})
	}
}

// inherit makes each heir want its object as it is, with all that this refers to.
func (l *Ledger) inherit() {
	due := l.inheritances
	l.inheritances = nil
	for _, i := range due {
		objects := byID(i.heir.folded)
		objects[i.object.ID] = i.object
		for next := []*dataplane.Object{i.object}; len(next) > 0; next = next[1:] {
			for _, ref := range refsOf(next[0], l.origin) {
				l.steps++
				e := l.entries.get(ref)
				if objects[ref] != nil || e == nil || e.object() == nil {
					continue
				}
				objects[ref] = e.object()
				next = append(next, e.object())
			}
		}
		kept := dataplane.NewFragment(i.heir.key, i.heir.created, valuesOf(objects))
		if i.heir.frozen {
			i.heir.present = kept
		} else {
			i.heir.applied = kept
		}
		l.fold(i.heir, kept)
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

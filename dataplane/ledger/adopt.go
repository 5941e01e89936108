// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// Adopt takes over what a previous process left in the kernel. It is called once, after the first Observe, with the
// Services that exist and have not submitted. What already matches is applied, and returned as settled. For every other
// Service, what the kernel has counts as its last applied fragment: Hold falls back to it, and it stays for a Service
// that has not submitted. So after a restart no Service is served worse because it is rejected or late.
//
// Origin names the owners of objects that no Service wants any more; it may be nil.
// Adopt walks all objects: it is called once at startup.
func (l *Ledger) Adopt(absent []service.Key, origin dataplane.Origin) []dataplane.Contribution {
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
	there := l.newInventory(origin)
	if !there.any {
		return settled
	}
	for a := range l.pending {
		if a.key != service.Node && !a.latest.Gone {
			a.applied = there.present(a)
			a.adopted = a.applied != nil
			l.leftovers.await(a)
		}
	}
	for _, key := range absent {
		if l.accounts[key] != nil {
			continue
		}
		a := &account{key: key, adopted: true}
		if left := there.present(a); left != nil {
			l.accounts[key], a.applied = a, left
			l.fold(a, left, found)
			l.leftovers.await(a)
		}
	}
	if len(l.leftovers.awaited) > 0 {
		l.leftovers.account = &account{key: service.Key{Name: "a former process"}}
		l.fold(l.leftovers.account, there.unattributed(), found)
	}
	return settled
}

// leftovers are elements in the kernel that no Service wants any more and that may belong to any Service that a
// previous process served. They stay until each of those Services is settled or gone.
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
		l.fold(r.account, nil, found)
		l.leftovers = leftovers{}
		l.compose() // so that Stats counts the objects to remove
	}
}

// Freeze holds the keys, and takes what the kernel has of them for their last applied state. It is for Services whose
// last applied state the kernel rejects too: none of their objects is written until Release, or until a key submits that
// has not yet. It walks all objects: it is the last resort after failures.
func (l *Ledger) Freeze(keys []service.Key, origin dataplane.Origin) {
	there := l.newInventory(origin)
	for _, key := range keys {
		if a := l.accounts[key]; a != nil {
			l.Hold(key)
			if a.applied = there.present(a); a.applied == nil {
				a.applied = dataplane.NewFragment(key, nil)
			}
			a.adopted = true
			l.fold(a, a.applied, a.stance)
		}
	}
}

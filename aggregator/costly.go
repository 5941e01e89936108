// SPDX-License-Identifier: Apache-2.0

package aggregator

import (
	"maps"
	"slices"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// This file limits the share of time that writes of one large Service take. After a change that took t to write, the
// next change of the same Service waits 10 t. Other Services do not wait.
//
// Invariant: a change waits at most costlyMax for this reason. The later parts of a divided change, repairs, and
// changes that remove a Service do not wait.

const (
	// costlyRest is the ratio of the wait of the next change to the duration of the write.
	costlyRest = 10
	// costlyMin is the shortest duration that causes a wait. Small changes cause none: theirs depends on the node.
	costlyMin = 50 * time.Millisecond
	// costlyMax is the longest wait. For as long, clients may be sent to an endpoint that was removed.
	costlyMax = 5 * time.Second
)

// costly is a Service with a change that took long.
type costly struct {
	// spent is the time that the parts of the change took, and until is when the next change may be written.
	spent time.Duration
	until time.Time
	// next is the newest waiting fragment, nil for none, and due is when it is folded at the latest.
	next *dataplane.Fragment
	due  time.Time
}

// dueAt returns when the waiting fragment is folded.
func (c *costly) dueAt() time.Time { return dataplane.Earliest(c.until, c.due) }

// charge adds the duration of a landed write to each large Service in it, by the Service's share of the size. It
// subtracts the usual duration, because the write would take that long without the Service, too.
func (m *machine) charge(now time.Time, r *result) {
	if r.receipt.Outcome != dataplane.Landed {
		return
	}
	maps.DeleteFunc(m.costly, func(key service.Key, c *costly) bool {
		return c.next == nil && !now.Before(c.until) && !m.ledger.Pending(key)
	})
	owned, all := map[service.Key]time.Duration{}, time.Duration(0)
	for i := range r.batch.Changes {
		size := time.Duration(r.batch.Changes[i].Size())
		owned[r.batch.Changes[i].Owner] += size
		all += size
	}
	for i := range r.batch.Contributions {
		key := r.batch.Contributions[i].Key
		if key == service.Node || owned[key] <= usualSize {
			continue
		}
		c := m.costly[key]
		if c == nil {
			c = &costly{}
			m.costly[key] = c
		}
		c.spent += max(0, r.receipt.Took-m.tries.usual) * owned[key] / all
		if c.spent >= costlyMin {
			c.until = now.Add(min(costlyRest*c.spent, costlyMax))
		}
	}
}

// postpone keeps a fragment of a Service that waits, and reports whether it did. A fragment that removes a Service does
// not wait, because another Service may get its addresses.
func (m *machine) postpone(now time.Time, f *dataplane.Fragment) bool {
	c := m.costly[f.Key]
	if c == nil {
		return false
	}
	if c.next != nil {
		f = newerFragment(c.next, f)
	}
	if len(f.Objects) == 0 || !now.Before(c.until) {
		c.next = nil
		m.pending.costly.end(f.Key)
		if !c.until.IsZero() && !now.Before(c.until) {
			delete(m.costly, f.Key)
		}
		return false
	}
	if c.next == nil {
		c.due = now.Add(costlyMax)
	}
	c.next = f
	m.pending.costly.begin(f.Key, now)
	return true
}

// duePostponed returns the fragments that have waited long enough. It removes the records of their Services.
func (m *machine) duePostponed(now time.Time) (due []*dataplane.Fragment) {
	for _, key := range slices.SortedFunc(maps.Keys(m.costly), service.Key.Compare) {
		if c := m.costly[key]; c.next != nil && !now.Before(c.dueAt()) {
			due = append(due, c.next)
			m.pending.costly.end(key)
			delete(m.costly, key)
		}
	}
	return due
}

// awaitPostponed requests a write for the fragments that have waited long enough. It returns when the next fragment is
// due; zero for none.
func (m *machine) awaitPostponed(now time.Time) (next time.Time) {
	for _, c := range m.costly {
		if c.next != nil {
			next = sooner(next, c.dueAt())
		}
	}
	if !next.IsZero() && !now.Before(next) {
		m.pacer.Waiting(now)
		return time.Time{}
	}
	return next
}

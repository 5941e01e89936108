// SPDX-License-Identifier: Apache-2.0

package aggregator

import (
	"slices"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/ledger"
	"github.com/sluice-proxy/sluice/service"
)

// This file determines which Services are applied. Everything that shows the state of a Service or the node uses it.
//
// Invariant: a Service is applied in a domain exactly if the kernel has its newest rules and none of them is known to be
// missing. So a Service is not applied while its fragment waits, is written or is tried, nor from the moment an audit
// finds damage until a write or an audit shows that the damage is repaired, even if the repair waits. Quarantined
// Services are listed separately.

// unapplied reports whether a key is pending.
func (m *machine) unapplied(key service.Key) bool {
	return m.pending.has(key) || m.gate.isAbsent(key)
}

// allUnapplied returns the pending keys: those that are tried, then the others, the oldest first.
func (m *machine) allUnapplied() []service.Key {
	return append(m.pending.first(m.pending.count()), m.gate.absent()...)
}

// count returns the number of keys that wait.
func (p *pending) count() (n int) {
	n = p.sought.order.Len() + p.waits.order.Len()
	for key := range p.costly.of {
		if !p.sought.has(key) && !p.waits.has(key) {
			n++
		}
	}
	return n
}

// has reports whether a key waits.
func (p *pending) has(key service.Key) bool {
	return p.waits.has(key) || p.sought.has(key) || p.costly.has(key)
}

// services returns the number of Services that wait.
func (p *pending) services() int {
	if p.has(service.Node) {
		return p.count() - 1
	}
	return p.count()
}

// lose notes the damage that an audit found. The affected keys wait from now on, unless quarantined or being tried.
func (m *machine) lose(now time.Time, drift *ledger.Drift) {
	since := dataplane.Earliest(m.pending.arrived, now) // the order of waits is that of the times
	lost := func(key service.Key) {
		if m.quarantine.held[key] == nil && !m.pending.sought.has(key) {
			m.pending.waits.begin(key, since)
			m.pending.damaged[key] = struct{}{}
		}
	}
	undone := drift.Undone
	if undone != nil {
		for key := range undone.Keys {
			lost(key)
		}
		if undone.Everyone {
			m.ledger.Served(lost)
		}
	}
	switch {
	case !drift.Bare && m.tries.proving: // the rules of suspects that are frozen are not wanted
	case !drift.Bare:
		m.pending.bare = time.Time{}
	case m.pending.bare.IsZero() && (undone != nil || m.pacer.Failures() > 0): // otherwise, the first write is still to come
		m.pending.bare = now
	}
}

// serves reports whether a write brought something of a Service into the kernel although the kernel rejects another one.
func (r *result) serves() bool {
	return r.receipt.Proven && slices.ContainsFunc(r.batch.Changes, func(c dataplane.Change) bool {
		now, certain := r.receipt.Certain[c.ID]
		return certain && now != nil && c.Owner != service.Node && dataplane.Same(now, c.After)
	})
}

// regain notes which damaged Services are whole again, after a write that may have left something out.
func (m *machine) regain(r *result) {
	switch {
	case r.receipt.Outcome == dataplane.Landed || r.serves():
		m.pending.bare = time.Time{}
	case len(r.receipt.Certain) == 0:
		return
	}
	for key := range m.pending.damaged {
		switch {
		case m.ledger.Pending(key) || m.pending.sought.has(key):
			delete(m.pending.damaged, key) // it waits for more than the repair
		case m.ledger.Whole(key):
			m.pending.end(key)
		}
	}
}

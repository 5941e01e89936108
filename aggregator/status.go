// SPDX-License-Identifier: Apache-2.0

package aggregator

import (
	"container/list"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/ledger"
	"github.com/sluice-proxy/sluice/service"
)

// Status is the state of a domain at one moment, for health and metrics. It never
// changes.
type Status struct {
	Domain string
	// Open is set once the startup gate is open and the first write may start. Missing counts the keys that the gate
	// waits for.
	Open    bool
	Missing int
	// OldestPending is the time since which the oldest change waits to be applied;
	// zero if nothing is pending. Health judges by its age. Keys that a bisection tries count from its last try,
	// because the others do not wait for them.
	OldestPending time.Time
	// Pending counts the Services that are not applied, without quarantined ones. Bare is the time since which the
	// kernel is known to have no rules that serve; zero if it has some.
	Pending int
	Bare    time.Time
	// RepairAt is until when a repair waits, because another program undid the last ones; zero if none waits.
	RepairAt time.Time
	// Excused is the time until which the write in flight excuses OldestPending: the write is within its limit, and
	// follows no failure. A restart before that time would only begin the write again. It is zero if nothing is
	// excused.
	Excused time.Time
	// Waiting is the number of submitted fragments that are in no batch yet.
	// Submitted is the time of the newest fragment, zero before the first.
	Waiting   int
	Submitted time.Time
	// Batches counts the planned batches that have changes.
	Batches uint64
	// LastWrite is when the last landed write ended.
	LastWrite time.Time
	// Failures counts the failed writes since then; LastError is their last error.
	Failures  int
	LastError string
	// NodeAtFault is set while the kernel rejects the scaffold itself.
	NodeAtFault bool
	// Quarantined lists the quarantined keys.
	Quarantined []QuarantinedKey
	Ledger      ledger.Stats
}

// Failing reports whether the last write failed, other than by the rejection of one Service.
func (s *Status) Failing() bool { return s.Failures > 0 || s.NodeAtFault }

// QuarantinedKey is one quarantined key.
type QuarantinedKey struct {
	Key      service.Key
	Revision service.Revision
	// Reason is the message of the kernel or its tool; it says so if the Service does not land.
	Cause  Cause
	Reason string
	Since  time.Time
}

// status returns the status, as far as the machine determines it.
func (m *machine) status() Status {
	return Status{
		Domain: m.domain, Open: m.gate.opened, Missing: m.gate.missing(),
		OldestPending: m.pending.oldest(), Pending: m.pending.services(), Bare: m.pending.bare,
		RepairAt: m.repairs.heldUntil, Excused: m.excused(), LastWrite: m.health.lastWrite,
		Failures: m.pacer.Failures(), LastError: m.health.lastError, NodeAtFault: m.health.nodeAtFault,
		Quarantined: m.quarantine.list(), Ledger: m.ledger.Stats(), Batches: m.ledger.Batches(),
	}
}

// oldest returns the start of the longest wait for a write, for any reason: fragments, suspects
// and damaged objects. Quarantined keys do not count.
func (p *pending) oldest() time.Time {
	oldest := dataplane.Earliest(dataplane.Earliest(p.waits.oldest(), p.costly.oldest()), dataplane.Earliest(p.arrived, p.drifted))
	if sought := p.sought.oldest(); !sought.IsZero() {
		oldest = dataplane.Earliest(oldest, laterOf(sought, p.progress))
	}
	return oldest
}

// seek notes that a bisection tries a key from now on.
func (p *pending) seek(key service.Key, now time.Time) {
	p.waits.end(key)
	p.sought.begin(key, now)
}

// end notes that a key waits no longer.
func (p *pending) end(key service.Key) {
	p.waits.end(key)
	p.sought.end(key)
	delete(p.damaged, key)
}

// clear notes that no key waits any longer.
func (p *pending) clear() {
	p.waits.clear()
	p.sought.clear()
	if len(p.damaged) > 0 {
		p.damaged = map[service.Key]struct{}{}
	}
}

// waits has the keys that are not applied, with the time since which. It is pure. Time
// must not go backwards.
//
// Invariant: the list is in the order of the times, so the first is the oldest.
type waits struct {
	order *list.List // of wait
	of    map[service.Key]*list.Element
}

type wait struct {
	key   service.Key
	since time.Time
}

func newWaits() waits { return waits{order: list.New(), of: map[service.Key]*list.Element{}} }

// begin notes that a key waits from now on, unless it waits already.
func (w *waits) begin(key service.Key, now time.Time) {
	if w.of[key] == nil {
		w.of[key] = w.order.PushBack(wait{key, now})
	}
}

// has reports whether a key waits.
func (w *waits) has(key service.Key) bool { return w.of[key] != nil }

// end notes that a key waits no longer.
func (w *waits) end(key service.Key) {
	e := w.of[key]
	if e == nil {
		return
	}
	w.order.Remove(e)
	delete(w.of, key)
	if len(w.of) == 0 {
		w.of = map[service.Key]*list.Element{} // an emptied map keeps the room of all keys
	}
}

// clear notes that no key waits any longer.
func (w *waits) clear() {
	if len(w.of) > 0 {
		*w = newWaits()
	}
}

// oldest returns the time since which the oldest waits; zero if none does.
func (w *waits) oldest() time.Time {
	if e := w.order.Front(); e != nil {
		return e.Value.(wait).since
	}
	return time.Time{}
}

// SPDX-License-Identifier: Apache-2.0

package aggregator

import (
	"maps"
	"slices"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// foldAndWrite folds the waiting fragments and writes, unless a search begins, or a witness comes first.
func (m *machine) foldAndWrite(now time.Time) {
	m.endTry(now)
	if m.flight == nil {
		m.isolate(now)
	}
	if m.flight != nil || m.tries.proving && m.write(now, ordinary) {
		return
	}
	m.pacer.Taken()
	m.take(func(now time.Time) { m.write(now, ordinary) })
}

// write begins to write the planned batch. It reports false if there is nothing to write;
// then fragments that need no write are settled immediately.
func (m *machine) write(now time.Time, why purpose) bool {
	plan := m.ledger.Plan
	switch {
	case m.tries.proving:
		plan = m.ledger.PlanWitness
	case why == ordinary && m.cut != nil:
		plan = func() *dataplane.Batch { return m.ledger.PlanPart(m.cut) }
	}
	batch := plan()
	if batch == nil || len(batch.Changes) == 0 {
		m.settleUnwritten(now, batch)
		return false
	}
	m.begin(now, job{purpose: why, batch: batch})
	return true
}

// settleUnwritten settles what is already in the kernel. Nothing is left to retry: a
// write that failed before has landed in part, or its objects are no longer wanted.
func (m *machine) settleUnwritten(now time.Time, batch *dataplane.Batch) {
	m.pacer.Recovered()
	m.failing = failing{}
	m.health.lastError, m.health.nodeAtFault = "", false
	m.proved(now)
	var settled []dataplane.Contribution
	if batch != nil {
		settled = m.ledger.Settle(batch, dataplane.Receipt{Outcome: dataplane.Landed})
	}
	m.settled(now, settled, &result{})
	m.repairDone(now)
}

// apply handles the result of a job.
func (r result) apply(m *machine, now time.Time) {
	switch r.purpose {
	case ahead:
		m.flight = nil
	case audit:
		m.flight = nil
		if m.start.adopted {
			m.audited(now, &r)
		} else {
			m.take(func(now time.Time) { m.audited(now, &r) }) // adoption compares with all that is wanted
		}
	default:
		m.settle(now, &r)
		m.flight = nil
		m.receive(now, &r)
	}
}

// settle tells the ledger the result of a write, and sends the acks.
func (m *machine) settle(now time.Time, r *result) {
	m.tell(BatchWritten{Domain: m.domain, Batch: r.batch, Receipt: r.receipt})
	settled := m.ledger.Settle(r.batch, r.receipt)
	if r.receipt.Outcome == dataplane.Unknown {
		// Without a read, writes that depend on a lost object would fail forever.
		m.pacer.AuditFirst(now)
	}
	m.settled(now, settled, r)
	m.regain(r)
	landed := r.receipt.Outcome == dataplane.Landed
	if landed && r.batch.Left == 0 || m.ledger.Stats().Dirty == 0 {
		m.repairDone(now)
	}
	m.partlyRepaired(r)
	m.charge(now, r)
	m.learn(r)
	if landed {
		m.health = health{lastWrite: now}
		m.tries.bisection.proof = true
	}
}

// receive handles the receipt of a write.
func (m *machine) receive(now time.Time, r *result) {
	if r.purpose != try {
		m.ordinaryDone(now, r)
		return
	}
	m.pending.progress = now
	m.rest(now, r.receipt.Took)
	m.tryDone(now, &r.receipt)
}

// ordinaryDone handles the receipt of an ordinary write.
func (m *machine) ordinaryDone(now time.Time, r *result) {
	m.tries.turn = true
	// A command may fail with everything in place; then there is no culprit. A witness has to land.
	landed := r.receipt.Outcome == dataplane.Landed || !m.tries.proving && m.ledger.Stats().Dirty == 0
	if landed {
		m.health.lastError, m.health.nodeAtFault, m.failing = "", false, failing{}
		m.wrote(now, r.receipt, true)
		m.proved(now)
		if r.batch.Left > 0 {
			m.pacer.Waiting(now) // for the next turn of a large Service
		}
		return
	}
	m.noteError(r.receipt)
	m.notProved()
	if isRejection(r.receipt.Outcome) {
		m.failing = failing{}
		if !m.rejected(now, r.batch, &r.receipt) {
			m.wrote(now, r.receipt, false)
			m.nodeRejected(now)
		}
		return
	}
	m.failing = failing{batch: r.batch, times: m.failing.times + 1, spent: m.failing.spent + r.receipt.Took,
		unread: m.failing.unread || r.receipt.Outcome == dataplane.Unknown}
	if m.failing.spent >= r.shared {
		m.failing.times = max(failuresMax, m.failing.times) // more attempts would take too long
	}
	m.witnessFailed(r.batch)
	if r.receipt.Outcome == dataplane.Busy && m.isolateFew(now) {
		m.pacer.Ended(now, r.receipt.Took)
		return
	}
	m.wrote(now, r.receipt, false)
}

// wrote tells the pacer of the end of a write.
func (m *machine) wrote(now time.Time, receipt dataplane.Receipt, landed bool) {
	m.pacer.Wrote(now, receipt.Took, landed, m.jitter())
	if !landed && receipt.Outcome == dataplane.Busy {
		m.pacer.Busy()
	}
}

// noteError keeps the error of a failed write.
func (m *machine) noteError(receipt dataplane.Receipt) {
	if receipt.Err != nil {
		m.health.lastError = receipt.Err.Error()
	}
}

// audited handles the result of a read.
func (m *machine) audited(now time.Time, r *result) {
	m.pacer.Audited(now, r.took, r.err == nil)
	done := AuditDone{Domain: m.domain, Objects: r.objects, Took: r.took, Err: r.err}
	if r.err == nil {
		done.Drift = m.ledger.Observe(r.objects)
		m.failing.unread = false
		m.lose(now, &done.Drift)
	} else {
		m.health.lastError = r.err.Error()
	}
	m.tell(done)
	m.beginRepair(now, &done)
	if r.err != nil && !m.start.adopted {
		m.pacer.Wrote(now, r.took, false, m.jitter())
		m.pacer.AuditSoon(now)
		return
	}
	switch {
	case r.err != nil:
	case !m.start.adopted:
		m.start.adopted = true
		m.settled(now, m.ledger.Adopt(m.gate.absent(), m.origin), &result{})
		for _, key := range slices.SortedFunc(maps.Keys(m.start.unlanded), service.Key.Compare) {
			if m.ledger.Pending(key) {
				m.setAside(now, key)
			}
		}
	case m.pending.drifted.IsZero() && done.Drift.Undone != nil:
		m.pending.drifted = now
	}
	if m.tries.bisection.idle() {
		m.quarantine.askOldest()
	}
	if until, held := m.repairs.held(now); held {
		m.pacer.AuditBy(until)
		return
	}
	m.foldAndWrite(now)
}

// settled sends the acks for contributions that are fully in the kernel. The write is the one that settled them; it is
// empty if nothing was written.
func (m *machine) settled(now time.Time, contributions []dataplane.Contribution, write *result) {
	var batch uint64
	if write.batch != nil {
		batch = write.batch.Number
	}
	for _, c := range contributions {
		m.pending.end(c.Key)
		if m.quarantine.release(c.Key) {
			m.quarantine.askOldest() // its obstacle may be gone for others, too
			m.tell(Freed{Domain: m.domain, Key: c.Key})
		}
		m.tell(Applied{Domain: m.domain, Contribution: c, At: now,
			Batched: write.began, Batch: batch})
		m.answer(dataplane.Ack{Key: c.Key, Domain: m.domain, Revision: c.Revision})
	}
	if m.ledger.Stats().Dirty > 0 && len(contributions) > 0 {
		m.pacer.Waiting(now) // leftovers of an earlier process may be removed now
	}
	m.restored()
}

// restored reports whether the kernel is as wanted, and notes it. It is not as wanted while a search leaves something
// out.
func (m *machine) restored() bool {
	left := m.ledger.Stats()
	if left.Dirty > 0 || m.searching() {
		return false
	}
	m.pending.drifted = time.Time{}
	if left.Pending == 0 {
		m.pending.clear() // of suspects whose objects were only repaired
	}
	return true
}

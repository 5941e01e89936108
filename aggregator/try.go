// SPDX-License-Identifier: Apache-2.0

package aggregator

import (
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// This file carries out the tries of a bisection.

// tryNext writes the next group of suspects. It reports false if none is left. Other
// differences are written first, so that a rejection can only be due to the group.
func (m *machine) tryNext(now time.Time) bool {
	for !m.tries.bisection.idle() {
		if m.write(now, ordinary) {
			return true
		}
		keys := m.tries.bisection.next()
		if keys == nil {
			break
		}
		m.tries.turn = false
		why := try
		if m.tries.bisection.current.restore {
			why = restore
		}
		for _, key := range keys {
			if why == restore {
				m.ledger.Restore(key)
			} else {
				m.ledger.Release(key)
			}
		}
		if m.write(now, why) {
			return true
		}
		m.tries.bisection.landed() // the kernel has it already
	}
	if m.tries.recheck {
		// The new culprits may only refer to something that another program removed.
		// A read soon shows that, and the tries after it release them.
		m.tries.recheck = false
		m.pacer.AuditSoon(now)
	}
	return false
}

// rest postpones the next try of a long bisection.
func (m *machine) rest(now time.Time, took time.Duration) {
	if m.tries.bisection.spent > tryBurst {
		m.tries.next = now.Add(m.pacer.Pause(took))
	}
}

// tryDone handles the receipt of a try.
func (m *machine) tryDone(now time.Time, receipt dataplane.Receipt) {
	rest := m.unsettled(m.tries.bisection.current.keys)
	if len(rest) == 0 {
		m.tries.bisection.landed()
		return
	}
	if !isRejection(receipt.Outcome) {
		m.unanswered(now, receipt)
		return
	}
	for _, key := range rest {
		m.ledger.Hold(key)
	}
	if m.ledger.Stats().Dirty > 0 {
		m.pacer.Waiting(now) // some of it has landed, and is reverted
	}
	if receipt.Proven {
		var culprits []service.Key
		culprits, rest = partition(rest, receipt.Suspects)
		for _, key := range culprits {
			m.quarantineKey(now, key, &receipt)
		}
		if len(culprits) > 0 {
			m.tries.bisection.current = group{}
			m.tries.bisection.suspect(rest, nil)
			return
		}
	}
	if culprit, found := m.tries.bisection.rejected(rest, receipt.Suspects); found {
		m.quarantineCulprit(now, culprit, &receipt)
	}
}

// unsettled returns the pending keys.
func (m *machine) unsettled(keys []service.Key) (rest []service.Key) {
	for _, key := range keys {
		if m.ledger.Pending(key) {
			rest = append(rest, key)
		}
	}
	return rest
}

// restoreDone handles the receipt of a try to restore what was last applied of a
// culprit.
func (m *machine) restoreDone(now time.Time, receipt dataplane.Receipt) {
	switch {
	case receipt.Outcome == dataplane.Landed || m.ledger.Stats().Dirty == 0:
		m.tries.bisection.landed()
	case isRejection(receipt.Outcome):
		m.ledger.Freeze(m.tries.bisection.current.keys, m.origin)
		m.tries.bisection.landed() // it stays as it is in the kernel
	default:
		m.unanswered(now, receipt)
	}
}

// tryBurst is how many tries of a bisection follow each other without a pause. Later ones
// keep the spacing of ordinary writes.
const tryBurst = 64

// knownNotToLand reports whether a key is quarantined because it does not land.
func (m *machine) knownNotToLand(key service.Key) bool {
	q := m.quarantine.held[key]
	return q != nil && q.Cause == DoesNotLand
}

// unanswered handles the receipt of a try that failed without a rejection. If the answer was
// lost, a read comes before the end of the try.
func (m *machine) unanswered(now time.Time, receipt dataplane.Receipt) {
	m.pacer.Ended(now, receipt.Took)
	m.tries.bisection.missed++
	m.tries.next = laterOf(m.tries.next, now.Add(m.pacer.Retry(m.tries.bisection.missed)))
	m.tries.bisection.current.unanswered = &receipt
	if receipt.Outcome == dataplane.Unknown {
		m.pacer.Waiting(now)
		return
	}
	m.endTry(now)
}

// endTry ends a try without an answer. It holds what has not landed, so that only a later try writes it. Holding
// earlier, before a read has shown what has landed, would revert unaffected Services.
func (m *machine) endTry(now time.Time) {
	if !m.tries.bisection.trying() {
		return
	}
	g := m.tries.bisection.current
	if g.restore {
		m.endRestore()
		return
	}
	rest := m.unsettled(g.keys)
	for _, key := range rest {
		m.ledger.Hold(key)
	}
	if m.ledger.Stats().Dirty > 0 {
		m.pacer.Waiting(now)
	}
	if len(rest) == 0 {
		m.tries.bisection.landed()
		return
	}
	known := m.knownNotToLand(g.keys[0])
	culprit, found := m.tries.bisection.unlanded(rest, known)
	switch {
	case !found:
	case known:
		m.quarantineCulprit(now, culprit, g.unanswered)
	default:
		m.writeWithoutSuspects(now, &rejection{suspects: rest, culprit: g.unanswered})
	}
}

// endRestore ends a try to restore what was last applied of a culprit. After failuresMax tries that did not land, the
// culprit stays as it is in the kernel.
func (m *machine) endRestore() {
	switch {
	case m.ledger.Stats().Dirty == 0:
		m.tries.bisection.landed()
	case m.tries.bisection.current.misses+1 < failuresMax:
		m.tries.bisection.putBack()
	default:
		m.ledger.Freeze(m.tries.bisection.current.keys, m.origin)
		m.tries.bisection.landed()
	}
}

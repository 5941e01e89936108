// SPDX-License-Identifier: Apache-2.0

package aggregator

import (
	"fmt"
	"slices"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// This file finds the Services because of which writes are rejected, or do not land. The package comment has a picture.
//
// Invariant: no Service that was served right before a write is served worse after it, unless the API asked for it. So
// a suspect keeps what was last applied, even by a previous process. If the kernel does not take that either, the suspect
// is frozen: it keeps what the kernel has, until its newest rules land.
//
// A Service is quarantined only if it failed alone and the node takes other rules. If nothing else landed in the same
// search, the machine proves that with a witness: an ordinary write that rewrites the scaffold and contains nothing
// new. Until a witness lands, no group is tried and no fragment is folded. If the kernel rejects it, the node is at
// fault until a later one lands. If it fails otherwise, the host is the reason (witnessFailed).

// accused is a key that failed alone, and the receipt of its last try, until a witness lands or fails.
type accused struct {
	key     service.Key
	receipt *dataplane.Receipt
}

// failing describes ordinary writes that failed one after the other without a rejection.
type failing struct {
	// batch is that of the last write; times counts the writes, and spent is their total duration.
	batch *dataplane.Batch
	times int
	spent time.Duration
	// unread is set if it is not known what the last write left in the kernel.
	unread bool
}

const (
	// failuresMax is how many ordinary writes, and tries of one Service, fail in a row without a rejection before a
	// Service counts as the reason. If writes fail slowly, fewer are enough. Nearly always the host is the reason: a
	// lock was held, a buffer was full, or the answer was lost. Then a retry lands.
	failuresMax = 4
	// fewMax is how many Services are isolated at once if all others in their write landed.
	fewMax = 16
	// tryBurst is how many tries of a bisection follow each other without a pause. Later ones
	// keep the spacing of ordinary writes.
	tryBurst = 64
)

// Cause is why a Service is quarantined.
type Cause uint8

const (
	// Rejected: the kernel rejects what the Service wants.
	Rejected Cause = iota
	// DoesNotLand: every write of what the Service wants fails, with no answer from the
	// kernel that says why: it meets a lock, a full buffer or a lack of memory, or it is not done in time.
	DoesNotLand
	causes // their number
)

// String returns the cause as it is shown to people.
func (c Cause) String() string { return [...]string{"rejected", "does not land"}[c] }

func causeOf(o dataplane.Outcome) Cause {
	if isRejection(o) {
		return Rejected
	}
	return DoesNotLand
}

// reasonOf returns the error of a receipt. Unless it is a rejection, the cause and the outcome precede it.
func reasonOf(receipt *dataplane.Receipt) string {
	if cause := causeOf(receipt.Outcome); cause != Rejected {
		return fmt.Sprintf("%v: %v: %v", cause, receipt.Outcome, receipt.Err)
	}
	return fmt.Sprint(receipt.Err)
}

// isRejection reports whether an outcome means that a retry cannot succeed.
func isRejection(o dataplane.Outcome) bool {
	return o == dataplane.Rejected || o == dataplane.Unsupported
}

// rejected handles an ordinary write that the kernel rejects. It reports false if no Service can be the reason.
func (m *machine) rejected(now time.Time, batch *dataplane.Batch, receipt *dataplane.Receipt) bool {
	suspects, held := m.suspects(batch)
	switch {
	case len(suspects) > 0:
	case len(held) > 0 && m.health.nodeAtFault:
		// Even after an audit the kernel rejects what is restored for held Services, or for some of them.
		if named, _ := partition(held, receipt.Suspects); len(named) > 0 {
			held = named
		}
		m.ledger.Freeze(held, m.origin)
		m.pacer.Ended(now, receipt.Took)
		m.pacer.Waiting(now)
		return true
	default:
		return false
	}
	m.pacer.Ended(now, receipt.Took)
	if culprits, _ := partition(suspects, receipt.Suspects); receipt.Proven && len(culprits) > 0 {
		m.pacer.Recovered() // the rest landed
		m.quarantineProven(now, culprits, receipt)
		return true
	}
	m.search(now, suspects)
	m.seek(now, suspects)
	if len(suspects) == 1 && !severalOwners(batch) {
		m.convict(now, suspects[0], receipt)
		return true
	}
	m.tries.bisection.suspect(suspects, receipt.Suspects)
	return true
}

// isolate begins a search if ordinary writes fail again and again without a rejection.
func (m *machine) isolate(now time.Time) {
	f := m.failing
	if f.unread && f.times < 2*failuresMax {
		return // a hold reverts what has landed of a Service: read the kernel first
	}
	if f.batch == nil || m.isolateFew(now) || f.times < failuresMax {
		return
	}
	m.failing = failing{}
	suspects, held := m.suspects(f.batch)
	if len(suspects) == 0 {
		if len(held) > 0 {
			m.ledger.Freeze(held, m.origin) // what is restored for them may be what does not land
		}
		return
	}
	m.search(now, suspects)
	m.tries.bisection.doubt(suspects)
	m.tries.proving = true // until then, the host is the reason, and they wait like others
}

// isolateFew begins a search for the rest of a write if all but a few Services of it are
// applied. What landed shows that the host is not the reason, so only those few are retried with
// a pause, and the others do not wait. It reports whether it did.
func (m *machine) isolateFew(now time.Time) bool {
	batch := m.failing.batch
	suspects, _ := m.suspects(batch)
	if len(suspects) == 0 || len(suspects) > fewMax || len(suspects) >= len(batch.Contributions) || m.ledger.Pending(service.Node) {
		return false
	}
	m.failing = failing{}
	m.search(now, suspects)
	m.seek(now, suspects)
	m.tries.bisection.doubt(suspects)
	return true
}

// suspects returns the Services of a failed batch that are not applied with it: those whose newest fragments it
// contained, and those whose objects it repaired. Services that have nothing newer are returned separately: they are
// held, or have not submitted. If there is no other suspect, the node is one, as long as its previous rules can serve
// instead of its newest ones.
func (m *machine) suspects(batch *dataplane.Batch) (free, held []service.Key) {
	seen := map[service.Key]bool{service.Node: true}
	add := func(key service.Key) {
		switch {
		case seen[key]:
		case m.ledger.Held(key), m.ledger.Latest(key) == service.Revision{}:
			held = append(held, key)
		default:
			free = append(free, key)
		}
		seen[key] = true
	}
	for _, c := range batch.Contributions {
		if m.ledger.Pending(c.Key) {
			add(c.Key)
		}
	}
	for i := range batch.Changes {
		c := &batch.Changes[i]
		if !m.ledger.Differs(c.ID) {
			continue
		}
		add(c.Owner)
		if c.After != nil {
			for _, part := range c.After.Parts() {
				if len(batch.Contributions) == 0 { // else contributions name who changed it
					add(part.Owner)
				}
			}
		}
	}
	if len(free) == 0 && m.ledger.Replaces(service.Node) {
		free = append(free, service.Node)
	}
	return free, held
}

// search holds the suspects. The caller adds them to the bisection, or convicts the only one.
func (m *machine) search(now time.Time, suspects []service.Key) {
	m.tries.turn = false // what others have changed meanwhile goes first
	m.tries.bisection.begin()
	m.hold(now, suspects)
}

// seek notes that the keys are tried from now on.
func (m *machine) seek(now time.Time, keys []service.Key) {
	m.pacer.Recovered() // the search retries what failed
	for _, key := range keys {
		if m.quarantine.held[key] == nil {
			m.pending.seek(key, now)
		}
	}
}

// searching reports whether a Service is tried, or waits for the end of a search.
func (m *machine) searching() bool { return m.tries.accused != nil || !m.tries.bisection.idle() }

// hold makes the last applied state of keys wanted, so that no write but a try contains anything new of them.
func (m *machine) hold(now time.Time, keys []service.Key) {
	for _, key := range keys {
		m.ledger.Hold(key)
	}
	if m.ledger.Stats().Dirty > 0 {
		m.pacer.Waiting(now) // some of it has landed and is reverted, or something is to be restored
	}
}

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
		for _, key := range keys {
			m.ledger.Release(key)
		}
		if m.write(now, try) {
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
func (m *machine) tryDone(now time.Time, receipt *dataplane.Receipt) {
	rest := m.unsettled(m.tries.bisection.current.keys)
	if len(rest) == 0 {
		m.tries.bisection.landed()
		return
	}
	if !isRejection(receipt.Outcome) {
		m.unanswered(now, receipt)
		return
	}
	if culprits, others := partition(rest, receipt.Suspects); receipt.Proven && len(culprits) > 0 {
		m.tries.bisection.current = group{}
		m.hold(now, others)
		m.quarantineProven(now, culprits, receipt)
		m.tries.bisection.suspect(others, nil)
		return
	}
	m.hold(now, rest)
	if culprit, found := m.tries.bisection.rejected(rest, receipt.Suspects); found {
		m.convict(now, culprit, receipt)
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

// unanswered handles the receipt of a try that failed without a rejection. If the answer was
// lost, a read comes before the end of the try.
func (m *machine) unanswered(now time.Time, receipt *dataplane.Receipt) {
	m.pacer.Ended(now, receipt.Took)
	m.tries.bisection.missed++
	m.tries.next = laterOf(m.tries.next, now.Add(m.pacer.Retry(m.tries.bisection.missed)))
	m.tries.bisection.current.unanswered = receipt
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
	rest := m.unsettled(g.keys)
	m.hold(now, rest)
	if len(rest) == 0 {
		m.tries.bisection.landed()
		return
	}
	if culprit, found := m.tries.bisection.unlanded(rest, m.knownNotToLand(g.keys[0])); found {
		m.convict(now, culprit, g.unanswered)
	}
}

// knownNotToLand reports whether a key is quarantined because it does not land.
func (m *machine) knownNotToLand(key service.Key) bool {
	q := m.quarantine.held[key]
	return q != nil && q.Cause == DoesNotLand
}

// convict quarantines a key that failed alone. It writes a witness first unless the key is in quarantine already, or
// the kernel rejects the key and something else landed in this search. If the key does not land, what landed before
// proves nothing, because the host may fail since then.
func (m *machine) convict(now time.Time, key service.Key, receipt *dataplane.Receipt) {
	known := m.tries.bisection.proof || m.quarantine.held[key] != nil
	if !isRejection(receipt.Outcome) {
		known = m.knownNotToLand(key)
	}
	if known {
		m.quarantineKey(now, key, receipt)
		return
	}
	m.tries.accused, m.tries.proving = &accused{key, receipt}, true
	m.write(now, ordinary)
}

// proved notes that a witness landed.
func (m *machine) proved(now time.Time) {
	if !m.tries.proving {
		return
	}
	a := m.tries.accused
	m.tries.proving, m.tries.accused, m.tries.bisection.proof = false, nil, true
	m.tries.turn = false // what has arrived meanwhile goes before the next try
	if a != nil {
		m.quarantineKey(now, a.key, a.receipt)
	}
	for i := range m.tries.bisection.groups {
		m.seek(now, m.tries.bisection.groups[i].keys)
	}
}

// notProved notes that an ordinary write failed. If it was a witness, the accused key is tried again later.
func (m *machine) notProved() {
	if a := m.tries.accused; a != nil {
		m.tries.accused = nil
		m.tries.bisection.doubt([]service.Key{a.key})
	}
}

// witnessFailed handles a witness that failed without a rejection. If it contained more than the scaffold, that is left
// out next. Otherwise the host is the reason: unless the search has begun, what waited for the witness is written again.
func (m *machine) witnessFailed(witness *dataplane.Batch) {
	if !m.tries.proving || m.health.nodeAtFault {
		return
	}
	if node, held := m.suspects(witness); len(node)+len(held) > 0 {
		m.failing.times = max(failuresMax, m.failing.times)
		return
	}
	var keys []service.Key
	for i := range m.tries.bisection.groups {
		keys = append(keys, m.tries.bisection.groups[i].keys...)
	}
	if slices.ContainsFunc(keys, func(key service.Key) bool { return m.pending.sought.has(key) || m.quarantine.held[key] != nil }) {
		return // the search goes on once a witness lands
	}
	for _, key := range keys {
		m.ledger.Release(key)
	}
	m.tries.bisection.groups, m.tries.proving = nil, false
}

// quarantineProven quarantines the keys that the writer proved to be culprits: the kernel rejected objects of these
// keys alone, and takes objects of others.
func (m *machine) quarantineProven(now time.Time, keys []service.Key, receipt *dataplane.Receipt) {
	repairs := slices.DeleteFunc(slices.Clone(keys), m.ledger.Pending)
	if m.hold(now, keys); len(repairs) > 0 {
		m.ledger.Freeze(repairs, m.origin)
	}
	for _, key := range keys {
		m.quarantineKey(now, key, receipt)
	}
	if m.ledger.Stats().Pending > 0 {
		m.pacer.Waiting(now) // of the others
	}
}

// quarantineKey quarantines a key that failed alone, or that the writer proved to be a culprit. The receipt is that of
// its try.
func (m *machine) quarantineKey(now time.Time, key service.Key, receipt *dataplane.Receipt) {
	m.tries.recheck = m.tries.recheck || m.quarantine.held[key] == nil
	m.pending.end(key)
	if m.ledger.Withhold(key) {
		m.pacer.Waiting(now)
	}
	q := QuarantinedKey{Key: key, Revision: m.ledger.Latest(key), Cause: causeOf(receipt.Outcome), Reason: reasonOf(receipt)}
	before := m.quarantine.held[key]
	again := before != nil && before.Reason == q.Reason
	m.quarantine.put(now, q, receipt.Took)
	m.tell(Quarantined{Domain: m.domain, Key: key, Revision: q.Revision, Cause: q.Cause, Reason: q.Reason, At: now, Again: again})
	m.answer(dataplane.Ack{Key: key, Domain: m.domain, Revision: q.Revision,
		Quarantined: true, Reason: q.Reason})
}

// nodeRejected reports that the kernel rejects the scaffold itself. A rule may refer to
// something that another program removed. The same plan would be rejected again, so the
// kernel is read before the next write.
func (m *machine) nodeRejected(now time.Time) {
	m.health.nodeAtFault, m.tries.proving = true, true
	m.pacer.AuditFirst(now)
	m.tell(NodeAtFault{Domain: m.domain, Reason: m.health.lastError})
}

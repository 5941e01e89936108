// SPDX-License-Identifier: Apache-2.0

package aggregator

import (
	"errors"
	"slices"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// quarantine holds the culprits, and when each is tried again. It is pure.
type quarantine struct {
	held map[service.Key]*quarantinedKey
	// first has the next try for each cause. It is out of date if changed is set.
	first   [causes]nextTry
	changed bool
	// listed is the result of list; nil if it is out of date.
	listed []QuarantinedKey
}

// quarantinedKey is one quarantined key.
type quarantinedKey struct {
	QuarantinedKey
	// triedAt is when the key last failed; tryAt, if set, is when it is tried again. At
	// least pause lies between the two.
	triedAt, tryAt time.Time
	pause          time.Duration
	// trying is set during a try.
	trying bool
	// misses counts the tries in a row that did not land, from the one that quarantined the key.
	misses int
}

// nextTry is the key that is tried next, and when; a zero time for none.
type nextTry struct {
	key service.Key
	at  time.Time
}

// tryPause is the shortest pause between two tries of one key. So a bad Service that
// changes all the time costs one rejected write per second.
const tryPause = time.Second

// tryRest limits the tries of a key that does not land to a tenth of the time: a try may last
// until the write times out, and others wait in the meantime. A try that lasted longer than that did so because the
// process was suspended, which says nothing about the next try.
const tryRest = 10

// triesPerAudit is how many keys are tried again after each audit.
const triesPerAudit = 4

// put adds a key, or notes that it failed again, and how long the try took.
func (q *quarantine) put(now time.Time, key QuarantinedKey, took time.Duration) {
	key.Since, q.listed = now, nil
	c := q.held[key.Key]
	if c == nil {
		c = &quarantinedKey{}
		q.held[key.Key] = c
	} else {
		key.Since = c.Since
	}
	q.changed = true
	misses := c.misses
	*c = quarantinedKey{QuarantinedKey: key, triedAt: now, pause: tryPause}
	if key.Cause == DoesNotLand {
		c.pause, c.misses = max(tryPause, tryRest*min(took, jobTimeout)), misses+1
	}
}

// ask schedules another try of a key. It reports whether the key is quarantined.
func (q *quarantine) ask(key service.Key) bool {
	c := q.held[key]
	if c != nil && c.tryAt.IsZero() && !c.trying {
		c.tryAt = c.triedAt.Add(c.pause)
		q.changed = true
	}
	return c != nil
}

// tried notes that a try of a key begins, and returns its misses.
func (q *quarantine) tried(key service.Key) (misses int) {
	q.held[key].tryAt, q.held[key].trying, q.changed = time.Time{}, true, true
	return q.held[key].misses
}

// askOldest schedules tries of the keys that have waited longest.
func (q *quarantine) askOldest() {
	keys := q.keys()
	slices.SortFunc(keys, func(a, b service.Key) int {
		return q.held[a].triedAt.Compare(q.held[b].triedAt)
	})
	for _, key := range keys[:min(len(keys), triesPerAudit)] {
		q.ask(key)
	}
}

// due returns the key whose try is due, or the time of the next try, zero for none. Keys that do not land are left out
// if others are being tried. It walks the keys only after a change.
func (q *quarantine) due(now time.Time, others bool) (key service.Key, ok bool, next time.Time) {
	if q.changed {
		q.changed, q.first = false, [causes]nextTry{}
		for k, c := range q.held {
			if first := &q.first[c.Cause]; !c.tryAt.IsZero() && first.isAfter(nextTry{k, c.tryAt}) {
				*first = nextTry{k, c.tryAt}
			}
		}
	}
	first := q.first[Rejected]
	if unlanded := q.first[DoesNotLand]; !others && !unlanded.at.IsZero() && first.isAfter(unlanded) {
		first = unlanded
	}
	if first.at.IsZero() || first.at.After(now) {
		return service.Key{}, false, first.at
	}
	return first.key, true, now
}

// isAfter reports whether a try comes after another one. A zero time, for no try, comes last.
func (n nextTry) isAfter(other nextTry) bool {
	by := n.at.Compare(other.at)
	return n.at.IsZero() || by > 0 || by == 0 && n.key.Compare(other.key) > 0
}

// release removes a key. It reports whether the key was quarantined.
func (q *quarantine) release(key service.Key) bool {
	_, was := q.held[key]
	delete(q.held, key)
	if was {
		q.changed, q.listed = true, nil
	}
	return was
}

// keys returns the keys in order.
func (q *quarantine) keys() []service.Key {
	keys := make([]service.Key, 0, len(q.held))
	for key := range q.held {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, service.Key.Compare)
	return keys
}

// list returns the keys in order, with their reasons. It must not be changed.
func (q *quarantine) list() []QuarantinedKey {
	if q.listed == nil {
		for _, key := range q.keys() {
			q.listed = append(q.listed, q.held[key].QuarantinedKey)
		}
	}
	return q.listed
}

// setAside quarantines a key that the previous process could not write, once it is known what the kernel has of the
// key, unless that is what the key wants. The key is tried soon, after all others.
func (m *machine) setAside(now time.Time, key service.Key) {
	if !m.start.adopted || !m.start.unlanded[key] {
		return
	}
	delete(m.start.unlanded, key)
	if !m.ledger.Pending(key) {
		return
	}
	m.ledger.Hold(key)
	m.quarantineKey(now, key, &dataplane.Receipt{Outcome: dataplane.Unknown, Err: errNotTried})
	m.quarantine.ask(key)
}

// errNotTried is the reason for a key that the previous process could not write, until it is tried.
var errNotTried = errors.New("the previous process could not write it; this one tries it after all others")

// IsRemembered reports whether a key was quarantined because the previous process could not write it.
func IsRemembered(q Quarantined) bool {
	return q.Reason == reasonOf(&dataplane.Receipt{Outcome: dataplane.Unknown, Err: errNotTried})
}

// quarantineProven quarantines the keys that the writer proved to be culprits: the kernel rejected objects of these
// keys alone, and takes objects of others.
func (m *machine) quarantineProven(now time.Time, keys []service.Key, receipt *dataplane.Receipt) {
	m.hold(now, keys)
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

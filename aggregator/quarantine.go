// SPDX-License-Identifier: Apache-2.0

package aggregator

import (
	"container/heap"
	"errors"
	"slices"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// quarantine holds the culprits, and when each is tried again. It is pure.
type quarantine struct {
	held map[service.Key]*quarantinedKey
	// retries has the keys whose next try has a time, by cause.
	retries [causes]retries
	// listed is the result of list; nil if it is out of date.
	listed []QuarantinedKey
}

// quarantinedKey is one quarantined key.
type quarantinedKey struct {
	QuarantinedKey
	// triedAt is when the key last failed; tryAt, if set, is when it is tried again. At
	// least pause lies between the two. While tryAt is set, at is the position in the heap.
	triedAt, tryAt time.Time
	at             int
	pause          time.Duration
	// trying is set during a try.
	trying bool
	// misses counts the tries in a row that did not land, from the one that quarantined the key.
	misses int
}

// retries is a heap by the time of the next try, and then by key.
type retries []*quarantinedKey

// Len implements heap.Interface, as the next four methods do.
func (r retries) Len() int { return len(r) }

// Less is the order of the tries.
func (r retries) Less(i, j int) bool { return r[i].isBefore(r[j]) }

// Swap keeps the positions up to date.
func (r retries) Swap(i, j int) {
	r[i], r[j] = r[j], r[i]
	r[i].at, r[j].at = i, j
}

// Push appends a key.
func (r *retries) Push(key any) {
	c := key.(*quarantinedKey)
	c.at = len(*r)
	*r = append(*r, c)
}

// Pop removes the last key.
func (r *retries) Pop() any {
	last := len(*r) - 1
	c := (*r)[last]
	(*r)[last] = nil
	*r = (*r)[:last]
	return c
}

// first returns the key that is tried next; nil for none.
func (r retries) first() *quarantinedKey {
	if len(r) == 0 {
		return nil
	}
	return r[0]
}

// isBefore reports whether the try of a key comes before that of another one.
func (c *quarantinedKey) isBefore(other *quarantinedKey) bool {
	by := c.tryAt.Compare(other.tryAt)
	return by < 0 || by == 0 && c.Key.Compare(other.Key) < 0
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
	q.unschedule(c)
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
		heap.Push(&q.retries[c.Cause], c)
	}
	return c != nil
}

// unschedule cancels the next try of a key.
func (q *quarantine) unschedule(c *quarantinedKey) {
	if !c.tryAt.IsZero() {
		heap.Remove(&q.retries[c.Cause], c.at)
		c.tryAt = time.Time{}
	}
}

// tried notes that a try of a key begins, and returns its misses.
func (q *quarantine) tried(key service.Key) (misses int) {
	c := q.held[key]
	q.unschedule(c)
	c.trying = true
	return c.misses
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
// if others are being tried.
func (q *quarantine) due(now time.Time, others bool) (key service.Key, ok bool, next time.Time) {
	first := q.retries[Rejected].first()
	if unlanded := q.retries[DoesNotLand].first(); !others && unlanded != nil && (first == nil || unlanded.isBefore(first)) {
		first = unlanded
	}
	switch {
	case first == nil:
		return service.Key{}, false, time.Time{}
	case first.tryAt.After(now):
		return service.Key{}, false, first.tryAt
	default:
		return first.Key, true, now
	}
}

// release removes a key. It reports whether the key was quarantined.
func (q *quarantine) release(key service.Key) bool {
	c := q.held[key]
	if c == nil {
		return false
	}
	q.unschedule(c)
	delete(q.held, key)
	q.listed = nil
	return true
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

package aggregator

import (
	"slices"
	"time"

	"github.com/sluice-proxy/sluice/service"
)

// quarantine lists the keys that are held back, and when each is tried again.
// It is pure.
type quarantine struct {
	cells map[service.Key]*cell
	// first is the key that is tried next, at firstAt (zero for none), unless
	// something has changed since they were found.
	first   service.Key
	firstAt time.Time
	changed bool
}

// cell is one key in quarantine.
type cell struct {
	revision service.Revision
	reason   string
	since    time.Time
	// triedAt is the last time the key was refused; tryAt, if set, is when it
	// is tried again.
	triedAt, tryAt time.Time
	// trying is set from the beginning of a try to its end.
	trying bool
}

// trialPause is the shortest pause between two tries of one key: what a
// poisoned Service that changes all the time may cost its neighbours is one
// refused write per second.
const trialPause = time.Second

// trialsPerAudit is how many keys get another try after each audit.
const trialsPerAudit = 4

// put takes a key in, or takes note that it was refused once more.
func (q *quarantine) put(now time.Time, key service.Key, revision service.Revision, reason string) {
	c := q.cells[key]
	if c == nil {
		c = &cell{since: now}
		q.cells[key] = c
	}
	q.changed = true
	c.revision, c.reason, c.triedAt, c.tryAt, c.trying = revision, reason, now, time.Time{}, false
}

// ask wants a key to be tried again, after the pause. It reports whether the key is
// in quarantine.
func (q *quarantine) ask(key service.Key) bool {
	c := q.cells[key]
	if c != nil && c.tryAt.IsZero() && !c.trying {
		c.tryAt = c.triedAt.Add(trialPause)
		q.changed = true
	}
	return c != nil
}

// tried says that a key is on its way to the kernel.
func (q *quarantine) tried(key service.Key) {
	q.cells[key].tryAt, q.cells[key].trying, q.changed = time.Time{}, true, true
}

// askOldest wants those that have waited longest to be tried again.
func (q *quarantine) askOldest() {
	keys := q.keys()
	slices.SortFunc(keys, func(a, b service.Key) int {
		return q.cells[a].triedAt.Compare(q.cells[b].triedAt)
	})
	for _, key := range keys[:min(len(keys), trialsPerAudit)] {
		q.ask(key)
	}
}

// due gives the key whose try is due, or when the next one is; a zero time
// means that none is asked for. It walks the cells only after something has changed.
func (q *quarantine) due(now time.Time) (key service.Key, ok bool, next time.Time) {
	if q.changed {
		q.changed, q.first, q.firstAt = false, service.Key{}, time.Time{}
		for k, c := range q.cells {
			by := c.tryAt.Compare(q.firstAt)
			if !c.tryAt.IsZero() && (q.firstAt.IsZero() || by < 0 || by == 0 && k.Compare(q.first) < 0) {
				q.first, q.firstAt = k, c.tryAt
			}
		}
	}
	if q.firstAt.IsZero() || q.firstAt.After(now) {
		return service.Key{}, false, q.firstAt
	}
	return q.first, true, now
}

// free lets a key go; it reports whether the key was in quarantine.
func (q *quarantine) free(key service.Key) bool {
	_, was := q.cells[key]
	delete(q.cells, key)
	q.changed = q.changed || was
	return was
}

// keys gives the keys in order.
func (q *quarantine) keys() []service.Key {
	keys := make([]service.Key, 0, len(q.cells))
	for key := range q.cells {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, service.Key.Compare)
	return keys
}

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
}

// cell is one key in quarantine.
type cell struct {
	revision service.Revision
	reason   string
	since    time.Time
	// triedAt is the last time the key was refused; tryAt, if set, is when it
	// is tried again.
	triedAt, tryAt time.Time
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
	c.revision, c.reason, c.triedAt, c.tryAt = revision, reason, now, time.Time{}
}

// ask wants a key to be tried again, after the pause.
func (q *quarantine) ask(key service.Key) {
	if c := q.cells[key]; c != nil && c.tryAt.IsZero() {
		c.tryAt = c.triedAt.Add(trialPause)
	}
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
// means that none is asked for.
func (q *quarantine) due(now time.Time) (key service.Key, ok bool, next time.Time) {
	for _, k := range q.keys() {
		at := q.cells[k].tryAt
		switch {
		case at.IsZero():
		case !at.After(now):
			return k, true, now
		case next.IsZero() || at.Before(next):
			next = at
		}
	}
	return service.Key{}, false, next
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

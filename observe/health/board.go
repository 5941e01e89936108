package health

import (
	"maps"
	"time"

	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/ledger"
)

// board remembers what has happened and no snapshot tells. It is pure; its owner
// says what time it is and lets one goroutine in at a time.
type board struct {
	domains map[string]record
	// parked and refused are by the name of the Service. There may be as many of
	// the refused as the cluster has Services, so refusedMax bounds them.
	parked, refused map[string]Affected
	// stuck holds the abandoned goroutines that have not returned.
	stuck map[abandoned]Affected
}

// refusedMax bounds the refused Services that are remembered; further ones are
// not counted.
const refusedMax = 1000

// record is what the board remembers of one domain.
type record struct {
	// failing is when the first failed of the writes that have failed since the
	// last success. It means something only while the snapshot says so.
	failing time.Time
	// right is when an audit last found the kernel as wanted.
	right time.Time
	// unread is since when audits fail, and readErr says why.
	unread  time.Time
	readErr string
	// adopted is set once the kernel has been read for the first time: what
	// differs then is what the former run has left.
	adopted bool
	// drift is what the last audit found that found anything, at driftAt; drifts
	// counts those audits.
	drift   ledger.Drift
	driftAt time.Time
	drifts  int
}

// abandoned is one goroutine that the supervisor has given up.
type abandoned struct {
	child       string
	incarnation uint64
}

func newBoard() board {
	return board{
		domains: map[string]record{},
		parked:  map[string]Affected{},
		refused: map[string]Affected{},
		stuck:   map[abandoned]Affected{},
	}
}

// clone gives a copy that its owner may keep.
func (b *board) clone() board {
	return board{
		domains: maps.Clone(b.domains), parked: maps.Clone(b.parked),
		refused: maps.Clone(b.refused), stuck: maps.Clone(b.stuck),
	}
}

// wrote takes note of a write. Before is the snapshot from before it.
func (b *board) wrote(now time.Time, e aggregator.BatchWritten, before *aggregator.Status) {
	r := b.domains[e.Domain]
	switch {
	case e.Receipt.Outcome == dataplane.Landed:
		r.failing = time.Time{}
	case r.failing.IsZero() || !failing(before):
		r.failing = now
	}
	b.domains[e.Domain] = r
}

// audited takes note of an audit. Before is the snapshot from before it: what
// differs while something of our own waits to be written is nobody else's doing.
func (b *board) audited(now time.Time, e aggregator.AuditDone, before *aggregator.Status) {
	r := b.domains[e.Domain]
	quiet := r.adopted && !failing(before) && before.Ledger.Dirty == 0
	switch {
	case e.Err != nil:
		if r.unread.IsZero() {
			r.unread = now
		}
		r.readErr = oneLine(e.Err.Error())
		b.domains[e.Domain] = r
		return
	case !e.Drift.Any():
		r.right = now
	case quiet:
		r.drift, r.driftAt = e.Drift, now
		r.drifts++
	}
	r.unread, r.readErr, r.adopted = time.Time{}, "", true
	b.domains[e.Domain] = r
}

// sampled takes note of a snapshot, for an owner that has missed the event.
func (b *board) sampled(now time.Time, s *aggregator.Status) {
	if r := b.domains[s.Domain]; failing(s) && r.failing.IsZero() {
		r.failing = now
		b.domains[s.Domain] = r
	}
}

package health

import (
	"maps"
	"time"

	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/ledger"
	"github.com/sluice-proxy/sluice/service"
)

// board remembers past events that no snapshot shows. It is pure: its owner passes the time, and
// lets one goroutine in at a time.
type board struct {
	domains map[string]history
	parked  map[service.Key]Affected
	// refused is bounded by refusedMax: there can be as many as the cluster has Services.
	refused map[service.Key]Affected
	// stuck holds the abandoned incarnations whose goroutines have not returned.
	stuck map[incarnation]Affected
}

// refusedMax bounds the refused Services that the board remembers; it does not count further ones.
const refusedMax = 1000

// history is what the board remembers of one domain.
type history struct {
	// failing is when the first failed of the writes that have failed since the last success. It is
	// valid only while the snapshot says that writes fail.
	failing time.Time
	// right is when an audit last found the kernel as wanted.
	right time.Time
	// unread is when audits began to fail, and readErr says why.
	unread  time.Time
	readErr string
	// adopted is set once the kernel has been read for the first time. What differs then was left
	// by the previous run.
	adopted bool
	// drift is what the last audit with a difference found, at driftAt; drifts counts such audits.
	drift   ledger.Drift
	driftAt time.Time
	drifts  int
}

// incarnation is one life of a Service's actor.
type incarnation struct {
	key    service.Key
	number uint64
}

func newBoard() board {
	return board{
		domains: map[string]history{},
		parked:  map[service.Key]Affected{},
		refused: map[service.Key]Affected{},
		stuck:   map[incarnation]Affected{},
	}
}

// clone returns a copy that the caller may keep.
func (b *board) clone() board {
	return board{
		domains: maps.Clone(b.domains), parked: maps.Clone(b.parked),
		refused: maps.Clone(b.refused), stuck: maps.Clone(b.stuck),
	}
}

// wrote records a write. Before is the snapshot from before it.
func (b *board) wrote(now time.Time, e aggregator.BatchWritten, before *aggregator.Status) {
	h := b.domains[e.Domain]
	switch {
	case e.Receipt.Outcome == dataplane.Landed:
		h.failing = time.Time{}
	case h.failing.IsZero() || !failing(before):
		h.failing = now
	}
	b.domains[e.Domain] = h
}

// audited records an audit. Before is the snapshot from before it: while our own changes wait to
// be written, a difference is no other program's doing.
func (b *board) audited(now time.Time, e aggregator.AuditDone, before *aggregator.Status) {
	h := b.domains[e.Domain]
	quiet := h.adopted && !failing(before) && before.Ledger.Dirty == 0
	switch {
	case e.Err != nil:
		if h.unread.IsZero() {
			h.unread = now
		}
		h.readErr = oneLine(e.Err.Error())
		b.domains[e.Domain] = h
		return
	case !e.Drift.Any():
		h.right = now
	case quiet:
		h.drift, h.driftAt = e.Drift, now
		h.drifts++
	}
	h.unread, h.readErr, h.adopted = time.Time{}, "", true
	b.domains[e.Domain] = h
}

// sampled records a snapshot, in case the owner has missed the event.
func (b *board) sampled(now time.Time, s *aggregator.Status) {
	if h := b.domains[s.Domain]; failing(s) && h.failing.IsZero() {
		h.failing = now
		b.domains[s.Domain] = h
	}
}

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
	// large has the Services that ask for too much.
	large map[service.Key]Affected
	// shadows has the Services that lost frontends to others. It is bounded by shadowsMax: one
	// Service can want the addresses of all others.
	shadows map[shadow]shaded
	// stuck holds the abandoned incarnations whose goroutines have not returned.
	stuck map[incarnation]Affected
}

// shadowsMax bounds the shadowed Services that the board remembers; it does not count further ones.
const shadowsMax = 1000

// shadow is a Service and another one that has frontends which both want.
type shadow struct{ key, by service.Key }

// shaded is how many frontends that concerns, and since when.
type shaded struct {
	frontends int
	since     time.Time
}

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
		large:   map[service.Key]Affected{},
		shadows: map[shadow]shaded{},
		stuck:   map[incarnation]Affected{},
	}
}

// clone returns a copy that the caller may keep.
func (b *board) clone() board {
	return board{
		domains: maps.Clone(b.domains), parked: maps.Clone(b.parked),
		large: maps.Clone(b.large), shadows: maps.Clone(b.shadows), stuck: maps.Clone(b.stuck),
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

// shadowed records that a Service lost frontends to another one.
func (b *board) shadowed(now time.Time, at shadow, frontends int) {
	known, found := b.shadows[at]
	if !found {
		if len(b.shadows) >= shadowsMax {
			return
		}
		known.since = now
	}
	known.frontends += frontends
	b.shadows[at] = known
}

// unshadowed records that a Service no longer lacks frontends of another one.
func (b *board) unshadowed(at shadow, frontends int) {
	known, found := b.shadows[at]
	if known.frontends -= frontends; found && known.frontends > 0 {
		b.shadows[at] = known
		return
	}
	delete(b.shadows, at)
}

// sampled records a snapshot, in case the owner has missed the event.
func (b *board) sampled(now time.Time, s *aggregator.Status) {
	if h := b.domains[s.Domain]; failing(s) && h.failing.IsZero() {
		h.failing = now
		b.domains[s.Domain] = h
	}
}

// SPDX-License-Identifier: Apache-2.0

package account

import (
	"time"

	"github.com/sluice-proxy/sluice/dataplane/conntrack"
	"github.com/sluice-proxy/sluice/dataplane/traffic"
)

// Level is how pressed the connection table is.
type Level uint8

// The levels, the gravest last.
const (
	Calm Level = iota
	// Filling: 80 % of the entries are used.
	Filling
	// Dropping: packets were dropped, or connections to make room, in the last few minutes.
	Dropping
	// Full: 95 % of the entries are used.
	Full
)

// The shares of used entries, in percent, at which a level begins. It ends calmAfter below.
const (
	fillingAt = 80
	fullAt    = 95
	calmAfter = 5
)

// dropsShown is how long drops are remembered.
const dropsShown = 5 * time.Minute

// Pressure is the state of the connection table at a moment. The zero value is from before the first reading.
type Pressure struct {
	conntrack.Usage
	// At is the time of the reading, and Since when the level began.
	At, Since time.Time
	Level     Level
	// Drops counts what was dropped since LastDrop, the last time that anything was, in the reading that found it.
	LastDrop time.Time
	Drops    uint64
	// Holders has the Services and clients with most entries, as of the last reading of the table, which is at most
	// about 30 s ago; nil at the level Calm, or if the table cannot be read.
	Holders *traffic.Flows
}

// Percent returns the share of used entries.
func (p *Pressure) Percent() uint64 {
	if p.Limit == 0 {
		return 0
	}
	return p.Entries * 100 / p.Limit
}

// next returns the state that follows with a reading. What was dropped before the first reading does not count.
func (p *Pressure) next(now time.Time, u conntrack.Usage) Pressure {
	n := *p
	n.Usage, n.At = u, now
	if drops := grown(p.Dropped, u.Dropped) + grown(p.EarlyDropped, u.EarlyDropped); drops > 0 && !p.At.IsZero() {
		n.LastDrop, n.Drops = now, drops
	}
	if n.Level = n.level(p.Level); n.Level != p.Level {
		n.Since = now
	}
	if n.Level == Calm {
		n.Holders = nil
	}
	return n
}

// level returns the level, given the one before.
func (p *Pressure) level(before Level) Level {
	// at reports whether the share reaches a bound. A level that it has reached before ends a little below.
	at := func(bound uint64, reached bool) bool {
		if reached {
			bound -= calmAfter
		}
		return p.Limit > 0 && p.Percent() >= bound
	}
	switch {
	case at(fullAt, before == Full):
		return Full
	case !p.LastDrop.IsZero() && p.At.Sub(p.LastDrop) < dropsShown:
		return Dropping
	case at(fillingAt, before != Calm):
		return Filling
	default:
		return Calm
	}
}

// grown returns the growth of a total, which starts again if one of its numbers wraps.
func grown(before, now uint64) uint64 {
	if now < before {
		return 0
	}
	return now - before
}

// SPDX-License-Identifier: Apache-2.0

package account

import (
	"time"

	"github.com/sluice-proxy/sluice/dataplane/conntrack"
	"github.com/sluice-proxy/sluice/dataplane/traffic"
)

// Level is the level of pressure on the connection table.
type Level uint8

// The levels, from low to high.
const (
	Calm Level = iota
	// Filling: 80 % of the entries are used.
	Filling
	// Dropping: in the last few minutes, the kernel dropped packets, or connections to make room.
	Dropping
	// Full: 95 % of the entries are used.
	Full
)

// The shares of used entries, in percent, at which a level begins. It ends calmAfter below this share.
const (
	fillingAt = 80
	fullAt    = 95
	calmAfter = 5
)

// dropsShown is the time for which drops keep the level Dropping.
const dropsShown = 5 * time.Minute

// Pressure is the state of the connection table at one time. Before the first reading, it is the zero value.
type Pressure struct {
	conntrack.Usage
	// At is the time of the reading. Since is the time at which the level began.
	At, Since time.Time
	Level     Level
	// LastDrop is the time of the last reading that found drops. Drops is their number in this reading.
	LastDrop time.Time
	Drops    uint64
	// Holders contains the Services and clients with most entries. It is from the last reading of the table, at most about
	// 30 s ago. It is nil at the level Calm, and if the table cannot be read.
	Holders *traffic.Flows
}

// Percent returns the share of used entries.
func (p *Pressure) Percent() uint64 {
	if p.Limit == 0 {
		return 0
	}
	return p.Entries * 100 / p.Limit
}

// next returns the state after a reading. Drops before the first reading do not count.
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

// level returns the level that follows the previous one.
func (p *Pressure) level(before Level) Level {
	// at reports whether the share reaches a bound. A level that was reached before ends below its bound.
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

// grown returns the growth of a total. It returns 0 if the total is lower than before, because a counter has wrapped.
func grown(before, now uint64) uint64 {
	if now < before {
		return 0
	}
	return now - before
}

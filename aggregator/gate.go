// SPDX-License-Identifier: Apache-2.0

package aggregator

import (
	"maps"
	"slices"
	"time"

	"github.com/sluice-proxy/sluice/service"
)

// gate holds the first write until every primed key has submitted or is skipped, or until no key has submitted for a
// while. So a restart never removes rules that are still wanted. It is pure and opens once.
//
// The wait counts from the last key that submitted: with many Services on a slow node,
// rendering takes its time, and an early first write would remove the rules of the
// Services to come.
//
// While held is set, another process owns the kernel's rules. This process does everything before its first job in that
// time.
type gate struct {
	opened bool
	primed bool
	held   bool
	// expect has the keys to wait for. seen has those that submitted before prime.
	expect map[service.Key]struct{}
	seen   map[service.Key]struct{}
	// skipped has the keys that were skipped and have not submitted since.
	skipped map[service.Key]struct{}
	// lastSubmit is when a key last left expect (submitted or skipped), when prime was called, or when the gate was
	// opened.
	lastSubmit time.Time
	wait       time.Duration
}

func newGate(wait time.Duration) *gate {
	return &gate{expect: map[service.Key]struct{}{}, seen: map[service.Key]struct{}{},
		skipped: map[service.Key]struct{}{}, wait: wait}
}

// prime names the keys that must submit first. Nothing is written before prime.
func (g *gate) prime(now time.Time, keys []service.Key) {
	if g.primed {
		return
	}
	g.primed, g.lastSubmit = true, now
	for _, key := range keys {
		_, seen := g.seen[key]
		_, skipped := g.skipped[key]
		if !seen && !skipped {
			g.expect[key] = struct{}{}
		}
	}
	g.seen = nil
}

// skip notes that a key will not submit soon.
func (g *gate) skip(now time.Time, key service.Key) {
	if g.opened {
		return
	}
	g.skipped[key] = struct{}{}
	if _, ok := g.expect[key]; ok {
		delete(g.expect, key)
		g.lastSubmit = now
	}
}

// submitted notes that a key has submitted.
func (g *gate) submitted(now time.Time, key service.Key) {
	delete(g.skipped, key)
	if !g.primed {
		g.seen[key] = struct{}{}
		return
	}
	if _, ok := g.expect[key]; ok {
		delete(g.expect, key)
		g.lastSubmit = now
	}
}

// open reports whether the startup gate is open, and otherwise when to call open again; zero means after the next
// event.
func (g *gate) open(now time.Time) (bool, time.Time) {
	if g.opened {
		return true, now
	}
	if !g.primed || g.held {
		return false, time.Time{}
	}
	until := g.lastSubmit.Add(g.wait)
	if len(g.expect) > 0 && now.Before(until) {
		return false, until
	}
	g.opened, g.lastSubmit = true, now // the wait of the first sync begins
	if len(g.expect) == 0 {
		g.expect = nil // an emptied map keeps its memory
	}
	return true, now
}

// unsubmitted returns the sets of keys that have not submitted.
func (g *gate) unsubmitted() []map[service.Key]struct{} {
	return []map[service.Key]struct{}{g.expect, g.skipped}
}

// absent returns the keys that have not submitted.
func (g *gate) absent() (all []service.Key) {
	for _, keys := range g.unsubmitted() {
		all = slices.AppendSeq(all, maps.Keys(keys))
	}
	return all
}

// isAbsent reports whether a key has not submitted.
func (g *gate) isAbsent(key service.Key) bool {
	return slices.ContainsFunc(g.unsubmitted(), func(keys map[service.Key]struct{}) bool {
		_, absent := keys[key]
		return absent
	})
}

// absentMax is how long the first sync waits for Services that have not submitted, counted from the opening of the gate
// or from the last key that submitted after it. Within that time, a stuck actor is replaced and a slow one has
// rendered. The wait is limited, even if an actor is parked: the rules that another proxy left serve the absent
// Services, but become stale for all others.
const absentMax = time.Minute

// awaits reports whether the first sync waits for a key that has not submitted, and until when; zero means until an
// event. Without the node's own rules no Service is served, so the wait for the node has no limit.
func (g *gate) awaits(now time.Time) (bool, time.Time) {
	_, expected := g.expect[service.Node]
	_, skipped := g.skipped[service.Node]
	if expected || skipped {
		return true, time.Time{}
	}
	until := g.lastSubmit.Add(absentMax)
	return len(g.expect)+len(g.skipped) > 0 && now.Before(until), until
}

// missing returns the number of keys that the gate waits for.
func (g *gate) missing() int { return len(g.expect) }

// absentees returns the number of Services in expect, and whether the node itself is in it.
func (g *gate) absentees() (services int, node bool) {
	if _, node = g.expect[service.Node]; node {
		return len(g.expect) - 1, true
	}
	return len(g.expect), false
}

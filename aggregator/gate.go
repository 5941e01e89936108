package aggregator

import (
	"maps"
	"slices"
	"time"

	"github.com/sluice-proxy/sluice/service"
)

// gate holds the first write until the source is primed and every key that it
// named has submitted, or nobody has for a while, so that a restart never shrinks
// a working node. It is pure and opens once.
//
// What counts is the time since the last key was crossed off, not since the
// first could be: with many Services on a slow node rendering takes as long as
// it takes, and an early first write would sweep the rules of those to come.
//
// While it is held, another process has the kernel's rules. Everything up to the first
// job is done meanwhile, so that this one starts as soon as the other has ended.
type gate struct {
	opened bool
	primed bool
	held   bool
	expect map[service.Key]struct{}
	seen   map[service.Key]struct{}
	// excused are those that were named, or may be, and that nobody waits for.
	excused map[service.Key]struct{}
	// heard is when the last key was crossed off, or the source was primed.
	heard time.Time
	wait  time.Duration
}

func newGate(wait time.Duration) *gate {
	return &gate{expect: map[service.Key]struct{}{}, seen: map[service.Key]struct{}{},
		excused: map[service.Key]struct{}{}, wait: wait}
}

// prime names the keys that must submit first. Before it nothing is written,
// however long the source takes.
func (g *gate) prime(now time.Time, keys []service.Key) {
	if g.primed {
		return
	}
	g.primed, g.heard = true, now
	for _, key := range keys {
		_, seen := g.seen[key]
		_, excused := g.excused[key]
		if !seen && !excused {
			g.expect[key] = struct{}{}
		}
	}
	g.seen = nil
}

// excuse says that a key will not submit soon: its actor has failed, or there is no
// room for one.
func (g *gate) excuse(now time.Time, key service.Key) {
	if g.opened {
		return
	}
	g.excused[key] = struct{}{}
	if _, ok := g.expect[key]; ok {
		delete(g.expect, key)
		g.heard = now
	}
}

// pass says that a key has submitted.
func (g *gate) pass(now time.Time, key service.Key) {
	delete(g.excused, key)
	if !g.primed {
		g.seen[key] = struct{}{}
		return
	}
	if _, ok := g.expect[key]; ok {
		delete(g.expect, key)
		g.heard = now
	}
}

// open reports whether the first write may start, and otherwise when to ask
// again; zero means when something happens.
func (g *gate) open(now time.Time) (bool, time.Time) {
	if g.opened {
		return true, now
	}
	if !g.primed || g.held {
		return false, time.Time{}
	}
	until := g.heard.Add(g.wait)
	if len(g.expect) > 0 && now.Before(until) {
		return false, until
	}
	g.opened = true
	if len(g.expect) == 0 {
		g.expect = nil // an emptied map keeps the room of all keys
	}
	return true, now
}

// absent gives the keys that have not submitted.
func (g *gate) absent() []service.Key {
	return slices.Concat(slices.Collect(maps.Keys(g.expect)), slices.Collect(maps.Keys(g.excused)))
}

// missing is the number of keys that the gate still waits for.
func (g *gate) missing() int { return len(g.expect) }

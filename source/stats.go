// SPDX-License-Identifier: Apache-2.0

package source

import (
	"sync/atomic"

	"github.com/sluice-proxy/sluice/service"
)

// Events counts the calls of the feeders since the cache was made, removals and equal
// values included.
type Events struct {
	// Specs counts calls about Services.
	Specs uint64
	// Slices counts calls about EndpointSlices; one that moves to another Service
	// counts for both.
	Slices service.PerFamily[uint64]
	// SliceChanges counts those of Slices that made a difference.
	SliceChanges uint64
}

// eventCounts is written by feeders and may be read by anyone.
type eventCounts struct {
	specs, sliceChanges atomic.Uint64
	slices              service.PerFamily[atomic.Uint64]
}

// received counts a call about a slice, and changed one that made a difference. Observations do not count.
func (e *eventCounts) received(s *service.Slice) {
	if s.Observed == nil {
		e.slices[s.Family].Add(1)
	}
}

func (e *eventCounts) changed(s *service.Slice) {
	if s.Observed == nil {
		e.sliceChanges.Add(1)
	}
}

// Events reads the counters. It never waits for a feeder.
func (c *Cache) Events() Events {
	e := Events{Specs: c.events.specs.Load(), SliceChanges: c.events.sliceChanges.Load()}
	for _, family := range service.Families {
		e.Slices[family] = c.events.slices[family].Load()
	}
	return e
}

// Stats counts what the cache holds.
type Stats struct {
	// Specs and Slices are the objects held now; Slices includes those of
	// Services that have no spec.
	Specs  int
	Slices int
	// Shadowed counts frontends that a Service asks for and another one has, in each family.
	Shadowed int
	// Primed reports that the first full picture was delivered.
	Primed bool
}

// Stats reads the counters. All of them belong to the same moment.
func (c *Cache) Stats() Stats {
	c.mu.RLock()
	defer c.mu.RUnlock()

	return Stats{Specs: len(c.specs), Slices: len(c.owners), Shadowed: c.admitted.shadowed, Primed: c.primed}
}

package source

import (
	"sync/atomic"

	"github.com/sluice-proxy/sluice/service"
)

// Events counts what feeders have told since the cache was made, removals
// included, whether it made a difference or not.
type Events struct {
	// Specs counts what was told about Services.
	Specs uint64
	// Slices counts what was told about EndpointSlices; one that moves to
	// another Service counts for both.
	Slices service.PerFamily[uint64]
	// SliceChanges counts those of Slices that made a difference.
	SliceChanges uint64
}

// eventCounts are counted by feeders and read by anybody.
type eventCounts struct {
	specs, sliceChanges atomic.Uint64
	slices              service.PerFamily[atomic.Uint64]
}

// Events reads the counters. It never waits for a feeder.
func (c *Cache) Events() Events {
	e := Events{Specs: c.events.specs.Load(), SliceChanges: c.events.sliceChanges.Load()}
	for _, family := range service.Families {
		e.Slices[family] = c.events.slices[family].Load()
	}
	return e
}

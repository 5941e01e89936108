// SPDX-License-Identifier: Apache-2.0

package book

import (
	"math"
	"slices"
	"time"

	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/observe/state"
	"github.com/sluice-proxy/sluice/service"
)

// timeline remembers the last changes of one Service, in 48 bytes each: 960 bytes per Service once
// it has changed often. Its memory grows with the first changes; later ones allocate nothing.
type timeline struct {
	steps []step
	// next is the place of the next step once there are state.TimelineMax.
	next int
}

// step is one change. The offsets are in microseconds before done; 0 is unknown, and the largest
// stands for all longer ones, from 71 minutes on.
type step struct {
	// done is in nanoseconds since 1970.
	done                                          int64
	trigger, received, seen, rendered, dispatched uint32
	incarnation, sequence                         uint32
	batch, endpoints                              uint32
	domain                                        uint8
	causes                                        dataplane.Causes
	rejected                                      bool
}

func (t *timeline) add(s step) {
	if len(t.steps) < state.TimelineMax {
		if len(t.steps) == cap(t.steps) {
			grown := make([]step, len(t.steps), min(state.TimelineMax, max(1, 3*len(t.steps))))
			copy(grown, t.steps)
			t.steps = grown
		}
		t.steps = append(t.steps, s)
		return
	}
	t.steps[t.next] = s
	t.next = (t.next + 1) % state.TimelineMax
}

// newest returns a copy, the newest step first.
func (t *timeline) newest() []step {
	all := append(slices.Clone(t.steps[t.next:]), t.steps[:t.next]...)
	slices.Reverse(all)
	return all
}

// micros returns the time between two moments in the form of a step's offsets.
func micros(from, to time.Time) uint32 {
	if from.IsZero() || from.After(to) {
		return 0
	}
	return uint32(min(max(1, to.Sub(from).Microseconds()), math.MaxUint32))
}

// appliedStep is a change that is applied.
func appliedStep(domain int, e *aggregator.Applied, triggered bool) step {
	made := step{
		done: e.At.UnixNano(), received: micros(e.Received, e.At),
		seen: micros(e.Trace.Seen.Time(), e.At), rendered: micros(e.Trace.Rendered.Time(), e.At),
		dispatched:  micros(e.Batched, e.At),
		incarnation: uint32(e.Revision.Incarnation), sequence: uint32(e.Revision.Sequence),
		batch: uint32(e.Batch), endpoints: e.Trace.Endpoints, domain: uint8(domain), causes: e.Trace.Causes,
	}
	if triggered {
		made.trigger = micros(e.Trigger, e.At)
	}
	return made
}

// rejectedStep is a change that the kernel rejects.
func rejectedStep(domain int, e *aggregator.Quarantined) step {
	return step{
		done: e.At.UnixNano(), incarnation: uint32(e.Revision.Incarnation), sequence: uint32(e.Revision.Sequence),
		domain: uint8(domain), rejected: true,
	}
}

// change returns a step in the form of answers: its times count from the receipt or, without one, from the actor's
// first look.
func (b *Book) change(s *step) state.Change {
	origin := s.received
	if origin == 0 {
		origin = max(s.seen, s.rendered, s.dispatched)
	}
	after := func(before uint32) int64 {
		if before == 0 {
			return 0
		}
		return max(0, int64(origin)-int64(before))
	}
	made := state.Change{
		Domain:   b.Domains[s.domain].Name,
		Revision: service.Revision{Incarnation: uint64(s.incarnation), Sequence: uint64(s.sequence)}.String(),
		Causes:   s.causes.Names(), Outcome: state.Applied,
		Received:   time.Unix(0, s.done).Add(-time.Duration(origin) * time.Microsecond).UTC(),
		SeenMicros: after(s.seen), RenderedMicros: after(s.rendered), BatchedMicros: after(s.dispatched), DoneMicros: int64(origin),
		Batch: uint64(s.batch), Endpoints: int(s.endpoints),
	}
	if s.trigger > origin {
		made.TriggerMicros = int64(origin) - int64(s.trigger)
	}
	if s.rejected {
		made.Outcome = state.Held
	}
	if made.Causes == nil {
		made.Causes = []string{}
	}
	return made
}

// Timeline returns the last changes of a Service, the newest first, state.TimelineMax at most.
func (b *Book) Timeline(key service.Key) []state.Change {
	var steps []step
	b.update(key, func(r *record) {
		if r.timeline != nil {
			steps = r.timeline.newest()
		}
	})
	changes := make([]state.Change, 0, len(steps))
	for i := range steps {
		changes = append(changes, b.change(&steps[i]))
	}
	return changes
}

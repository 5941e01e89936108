package metrics

import (
	"math"
	"slices"
	"time"

	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// TimelineMax is how many changes of one Service are remembered, over all domains.
const TimelineMax = 20

// timeline remembers the last changes of one Service, in 48 bytes each: 960 bytes per Service once
// it has changed often. Its memory grows with the first changes; later ones allocate nothing.
type timeline struct {
	steps []step
	// next is the place of the next step once there are TimelineMax.
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
	refused                                       bool
}

func (t *timeline) add(s step) {
	if len(t.steps) < TimelineMax {
		if len(t.steps) == cap(t.steps) {
			grown := make([]step, len(t.steps), min(TimelineMax, max(1, 3*len(t.steps))))
			copy(grown, t.steps)
			t.steps = grown
		}
		t.steps = append(t.steps, s)
		return
	}
	t.steps[t.next] = s
	t.next = (t.next + 1) % TimelineMax
}

// newest returns a copy, the newest step first.
func (t *timeline) newest() []step {
	all := append(slices.Clone(t.steps[t.next:]), t.steps[:t.next]...)
	slices.Reverse(all)
	return all
}

// micros returns the time between two moments as a step has it.
func micros(from, to time.Time) uint32 {
	if from.IsZero() || from.After(to) {
		return 0
	}
	return uint32(min(max(1, to.Sub(from).Microseconds()), math.MaxUint32))
}

// appliedStep is a change that is in force.
func (d *domain) appliedStep(e *aggregator.Applied, triggered bool) step {
	made := step{
		done: e.At.UnixNano(), received: micros(e.Received, e.At),
		seen: micros(e.Trail.Seen.Time(), e.At), rendered: micros(e.Trail.Rendered.Time(), e.At),
		dispatched:  micros(e.Batched, e.At),
		incarnation: uint32(e.Revision.Incarnation), sequence: uint32(e.Revision.Sequence),
		batch: uint32(e.Batch), endpoints: e.Trail.Endpoints, domain: d.index, causes: e.Trail.Causes,
	}
	if triggered {
		made.trigger = micros(e.Trigger, e.At)
	}
	return made
}

// refusedStep is a change that the kernel refuses.
func (d *domain) refusedStep(e *aggregator.Quarantined) step {
	return step{
		done: e.At.UnixNano(), incarnation: uint32(e.Revision.Incarnation), sequence: uint32(e.Revision.Sequence),
		domain: d.index, refused: true,
	}
}

// Change is one change of a Service in one domain.
type Change struct {
	Domain   string
	Revision service.Revision
	Causes   dataplane.Causes
	// Refused means that the kernel has refused it. Then only Done is known.
	Refused bool
	// Done is when it came into force. The others are how long before that something happened; 0
	// means unknown.
	Done                                          time.Time
	Trigger, Received, Seen, Rendered, Dispatched time.Duration
	// Batch is 0 if nothing had to be written.
	Batch     uint64
	Endpoints int
}

func (m *Metrics) change(s *step) Change {
	before := func(offset uint32) time.Duration { return time.Duration(offset) * time.Microsecond }
	return Change{
		Domain:   m.config.Domains[s.domain].Name,
		Revision: service.Revision{Incarnation: uint64(s.incarnation), Sequence: uint64(s.sequence)},
		Causes:   s.causes, Refused: s.refused, Done: time.Unix(0, s.done),
		Trigger: before(s.trigger), Received: before(s.received), Seen: before(s.seen),
		Rendered: before(s.rendered), Dispatched: before(s.dispatched),
		Batch: uint64(s.batch), Endpoints: int(s.endpoints),
	}
}

// Record is what is remembered of one Service.
type Record struct {
	// State is that of its actor: running, waiting or parked.
	State              string
	Restarts, Failures int
	// LastFailure is empty for an actor that has never failed.
	LastFailure           string
	FailedAt, ParkedUntil time.Time
	// TooLarge says what the Service asks for if that is too much; else it is empty.
	TooLarge string
	// Commits counts the revisions that came into force, over all families.
	Commits    int
	LastCommit time.Time
	// Last and Longest are how long changes took from their receipt; negative before the first.
	Last, Longest time.Duration
	// Endpoints may get new connections, Local are those of them on this node, and Draining ones
	// keep the connections they have.
	Endpoints, Local, Draining int
}

// Record returns what is remembered of a Service. It reports false if it has no actor.
func (m *Metrics) Record(key service.Key) (Record, bool) {
	s := m.records.locked(key)
	defer s.mu.Unlock()
	r := s.records[key]
	if r == nil {
		return Record{}, false
	}
	made := Record{
		State: r.state(), Restarts: int(r.restarts), Commits: int(r.commits),
		Last: r.received.last(), Longest: r.received.longest(),
	}
	if r.committed != 0 {
		made.LastCommit = time.Unix(0, r.committed)
	}
	if f := r.failures; f != nil {
		made.Failures, made.ParkedUntil, made.TooLarge = int(f.count), f.parkedUntil, f.large
		if f.count > 0 {
			made.LastFailure, made.FailedAt = f.kind+": "+f.text, f.at
		}
	}
	for _, family := range service.Families {
		made.Endpoints += int(r.endpoints[family].Local + r.endpoints[family].Remote)
		made.Local += int(r.endpoints[family].Local)
		made.Draining += s.draining[key][family]
	}
	return made, true
}

func (l *latency) last() time.Duration    { return seconds(l.Last) }
func (l *latency) longest() time.Duration { return seconds(l.Longest) }

func seconds(s float32) time.Duration { return time.Duration(float64(s) * float64(time.Second)) }

// Timeline returns the last changes of a Service, the newest first, TimelineMax at most.
func (m *Metrics) Timeline(key service.Key) []Change {
	var steps []step
	m.records.update(key, func(r *record) {
		if r.timeline != nil {
			steps = r.timeline.newest()
		}
	})
	changes := make([]Change, 0, len(steps))
	for i := range steps {
		changes = append(changes, m.change(&steps[i]))
	}
	return changes
}

// States counts the actors by their state, and the goroutines of abandoned ones.
func (m *Metrics) States() (running, waiting, parked, abandoned int) {
	r, w, p := m.actors.states(m.records.len())
	return int(r), int(w), int(p), int(m.actors.abandoned.Load())
}

package faults

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/actors"
	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/supervisor"
)

// heard is an event with its time.
type heard struct {
	at    time.Time
	event aggregator.Event
}

// witness remembers what the aggregators have told.
type witness struct {
	mu     sync.Mutex
	events []heard
	failed []supervisor.Event[service.Key]
}

// Supervisor is for observe.Listener.
func (w *witness) Supervisor(event supervisor.Event[service.Key]) {
	switch event.What.(type) {
	case supervisor.Failed, supervisor.Stuck, supervisor.Parked:
		w.mu.Lock()
		defer w.mu.Unlock()
		w.failed = append(w.failed, event)
	}
}

// Actors is for observe.Listener.
func (w *witness) Actors(actors.Event) {}

// Aggregator is for observe.Listener.
func (w *witness) Aggregator(event aggregator.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, heard{time.Now(), event})
}

// since gives the events after a moment.
func (w *witness) since(after time.Time) []heard {
	w.mu.Lock()
	defer w.mu.Unlock()
	at := slices.IndexFunc(w.events, func(h heard) bool { return h.at.After(after) })
	if at < 0 {
		return nil
	}
	return slices.Clone(w.events[at:])
}

// eventMax bounds the wait for something that the proxy should do.
var eventMax = slowly(10 * time.Second)

// await waits for an event after a moment, and gives it.
func (w *witness) await(t *testing.T, what string, after time.Time, is func(aggregator.Event) bool) heard {
	t.Helper()
	for began := time.Now(); time.Since(began) < eventMax; time.Sleep(500 * time.Microsecond) {
		for _, h := range w.since(after) {
			if is(h.event) {
				return h
			}
		}
	}
	t.Fatalf("waited in vain for: %s; heard %s", what, w.story(after))
	return heard{}
}

// story tells the events after a moment, but for the applied ones.
func (w *witness) story(after time.Time) string {
	text := ""
	for _, h := range w.since(after) {
		if _, routine := h.event.(aggregator.Applied); !routine {
			text += "\n" + h.at.Format("05.000 ") + tell(h.event)
		}
	}
	return text
}

// applied reports whether an event says that a Service's fragment is in the kernel.
func applied(domain string, key service.Key) func(aggregator.Event) bool {
	return func(e aggregator.Event) bool {
		a, ok := e.(aggregator.Applied)
		return ok && a.Domain == domain && a.Key == key
	}
}

// wrote reports whether an event is a write of a domain with some outcome.
func wrote(domain string, outcome dataplane.Outcome) func(aggregator.Event) bool {
	return func(e aggregator.Event) bool {
		w, ok := e.(aggregator.BatchWritten)
		return ok && w.Domain == domain && w.Receipt.Outcome == outcome
	}
}

// count gives the number of events after a moment.
func (w *witness) count(after time.Time, is func(aggregator.Event) bool) int {
	n := 0
	for _, h := range w.since(after) {
		if is(h.event) {
			n++
		}
	}
	return n
}

// tell describes an event in a line.
func tell(event aggregator.Event) string {
	switch e := event.(type) {
	case aggregator.BatchWritten:
		return fmt.Sprintf("%s: batch of %d changes: %v", e.Domain, len(e.Batch.Changes), e.Receipt)
	case aggregator.AuditDone:
		return fmt.Sprintf("%s: audit: %+v, %v", e.Domain, e.Drift, e.Err)
	default:
		return fmt.Sprintf("%T%+v", e, e)
	}
}

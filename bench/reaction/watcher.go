// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/sluice-proxy/sluice/actors"
	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source"
	"github.com/sluice-proxy/sluice/supervisor"
)

// watcher is an observe.Listener that measures times. The proxy's goroutines wait for it, so it
// does little.
type watcher struct {
	mu sync.Mutex
	// missing counts, by domain, the keys not applied for the first time yet. complete receives the
	// time when none is left.
	missing  map[string]int
	complete chan time.Time
	// awaited are the changes under way.
	awaited map[service.Key]*awaited
	// failed receives the first failure.
	failed chan error
	// counts is what has happened since the last call of take.
	counts counts
	// gate is when the last domain's gate opened, firstWrite how long the longest first write took.
	gate       time.Time
	firstWrite time.Duration
}

// awaited is a change under way. It is complete once its key is applied and no more of its objects
// are missing.
type awaited struct {
	objects int
	done    chan time.Time
}

// counts is the work of all domains.
type counts struct {
	written dataplane.Written
	// took is how long each write took, reading how long the longest audit took.
	took    []time.Duration
	reading time.Duration
}

func newWatcher(domains []string, keys int) *watcher {
	w := &watcher{
		missing: map[string]int{}, complete: make(chan time.Time, 1),
		awaited: map[service.Key]*awaited{}, failed: make(chan error, 1),
	}
	for _, domain := range domains {
		w.missing[domain] = keys
	}
	return w
}

// Source implements observe.Listener.
func (*watcher) Source(source.Shadowed) {}

// Aggregator implements observe.Listener.
func (w *watcher) Aggregator(event aggregator.Event) {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	switch e := event.(type) {
	case aggregator.GateOpened:
		w.gate = now
		if e.Missing > 0 {
			w.fail(fmt.Errorf("%s: %d Services were not ready in time", e.Domain, e.Missing))
		}
	case aggregator.BatchWritten:
		w.written(e)
	case aggregator.AuditDone:
		w.counts.reading = max(w.counts.reading, e.Took)
		if e.Err != nil {
			w.fail(fmt.Errorf("%s: audit: %w", e.Domain, e.Err))
		}
	case aggregator.Applied:
		w.applied(e, now)
	case aggregator.Quarantined:
		w.fail(fmt.Errorf("%s: %s quarantined: %s", e.Domain, e.Key, e.Reason))
	}
}

// written records a batch.
func (w *watcher) written(e aggregator.BatchWritten) {
	if e.Receipt.Outcome != dataplane.Landed {
		w.fail(fmt.Errorf("%s: %s", e.Domain, e.Receipt))
		return
	}
	w.counts.written = w.counts.written.Add(e.Receipt.Written)
	w.counts.took = append(w.counts.took, e.Receipt.Took)
	if e.Batch.Number == 1 {
		w.firstWrite = max(w.firstWrite, e.Receipt.Took)
	}
	if len(w.awaited) == 0 {
		return
	}
	for i := range e.Batch.Changes {
		if a := w.awaited[e.Batch.Changes[i].Owner]; a != nil {
			a.objects--
		}
	}
}

// applied records a key that is wholly in the kernel.
func (w *watcher) applied(e aggregator.Applied, now time.Time) {
	if left, counting := w.missing[e.Domain]; counting {
		if left--; left > 0 {
			w.missing[e.Domain] = left
			return
		}
		delete(w.missing, e.Domain)
		if len(w.missing) == 0 {
			w.complete <- now
		}
		return
	}
	if a := w.awaited[e.Key]; a != nil && a.objects <= 0 && strings.HasSuffix(e.Domain, "/IPv4") {
		delete(w.awaited, e.Key)
		a.done <- now
	}
}

// Supervisor implements observe.Listener.
func (w *watcher) Supervisor(event supervisor.Event[service.Key]) {
	if e, ok := event.What.(supervisor.Failed); ok {
		w.fail(e.Err)
	}
}

// Actors implements observe.Listener.
func (w *watcher) Actors(event actors.Event) {
	if e, ok := event.(actors.TooLarge); ok {
		w.fail(fmt.Errorf("%s: too large", e.Key))
	}
}

// fail keeps the first failure.
func (w *watcher) fail(err error) {
	select {
	case w.failed <- err:
	default:
	}
}

// expect returns a channel that receives the completion time of a change.
func (w *watcher) expect(c change) <-chan time.Time {
	a := &awaited{objects: c.objects, done: make(chan time.Time, 1)}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.awaited[c.key] = a
	return a.done
}

// take returns what has happened since the last call.
func (w *watcher) take() counts {
	w.mu.Lock()
	defer w.mu.Unlock()
	taken := w.counts
	w.counts = counts{}
	return taken
}

// await waits for a moment.
func (w *watcher) await(ctx context.Context, what string, moment <-chan time.Time) (time.Time, error) {
	select {
	case at := <-moment:
		return at, nil
	case err := <-w.failed:
		return time.Time{}, fmt.Errorf("while waiting for %s: %w", what, err)
	case <-ctx.Done():
		return time.Time{}, fmt.Errorf("timed out waiting for %s", what)
	}
}

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
	"github.com/sluice-proxy/sluice/supervisor"
)

// watcher listens to the proxy and takes the times. It implements
// observe.Listener; the proxy's goroutines wait for it, so it does little.
type watcher struct {
	mu sync.Mutex
	// missing counts, by domain, the keys that have yet to be applied for the
	// first time; complete is told when none is left anywhere.
	missing  map[string]int
	complete chan time.Time
	// awaited are the changes that are on their way.
	awaited map[service.Key]*awaited
	// failed is told the first failure.
	failed chan error
	// counts is what has happened since the last call of take.
	counts counts
	// gate is when the last domain's gate opened; firstWrite how long the
	// longest first write took.
	gate       time.Time
	firstWrite time.Duration
}

// awaited is one change on its way. It is complete once a batch is in that
// settles its key, with no objects left to come.
type awaited struct {
	objects int
	done    chan time.Time
}

// counts is the work of all domains.
type counts struct {
	Written dataplane.Written
	// Took is how long each write took.
	Took []time.Duration
	// Audits are readings of the kernel; no write can start meanwhile.
	Audits    int
	AuditTook time.Duration
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
		w.counts.Audits++
		w.counts.AuditTook = max(w.counts.AuditTook, e.Took)
		if e.Err != nil {
			w.fail(fmt.Errorf("%s: audit: %w", e.Domain, e.Err))
		}
	case aggregator.Applied:
		w.applied(e, now)
	case aggregator.Quarantined:
		w.fail(fmt.Errorf("%s: %s quarantined: %s", e.Domain, e.Key, e.Reason))
	}
}

// written takes note of a batch.
func (w *watcher) written(e aggregator.BatchWritten) {
	if e.Receipt.Outcome != dataplane.Landed {
		w.fail(fmt.Errorf("%s: %s", e.Domain, e.Receipt))
		return
	}
	w.counts.Written = w.counts.Written.Add(e.Receipt.Written)
	w.counts.Took = append(w.counts.Took, e.Receipt.Took)
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

// applied takes note of a key that is wholly in the kernel.
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
	if e, ok := event.(actors.Refused); ok {
		w.fail(fmt.Errorf("%s: no room", e.Key))
	}
}

// fail keeps the first failure.
func (w *watcher) fail(err error) {
	select {
	case w.failed <- err:
	default:
	}
}

// expect returns where the completion of a change will be told.
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
		return time.Time{}, fmt.Errorf("waited in vain for %s", what)
	}
}

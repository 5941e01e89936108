package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/sluice-proxy/sluice/actors"
	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/supervisor"
)

// watch listens to one domain.
type watch struct {
	domain string

	mu      sync.Mutex
	changed chan struct{}
	applied map[service.Key]time.Time
	written dataplane.Written
	// latency is how long the last applied fragment took from the source's
	// hand-over.
	latency time.Duration
	last    time.Time
	failed  error
}

func newWatch(domain string) *watch {
	return &watch{domain: domain, changed: make(chan struct{}), applied: map[service.Key]time.Time{}}
}

// Aggregator implements observe.Listener.
func (w *watch) Aggregator(event aggregator.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch e := event.(type) {
	case aggregator.BatchWritten:
		if e.Receipt.Err != nil {
			w.failed = e.Receipt.Err
		}
		if e.Domain == w.domain {
			w.written = e.Receipt.Written
		}
	case aggregator.Applied:
		if e.Domain != w.domain {
			return
		}
		w.applied[e.Key], w.last, w.latency = e.At, e.At, e.At.Sub(e.Received)
	default:
		return
	}
	close(w.changed)
	w.changed = make(chan struct{})
}

// Supervisor implements observe.Listener.
func (w *watch) Supervisor(event supervisor.Event[service.Key]) {
	if e, ok := event.What.(supervisor.Failed); ok {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.failed = e.Err
	}
}

// Actors implements observe.Listener.
func (w *watch) Actors(actors.Event) {}

// await waits until a condition, asked under the lock, holds.
func (w *watch) await(ctx context.Context, what string, held func() bool) error {
	for {
		w.mu.Lock()
		ok, failed, changed := held(), w.failed, w.changed
		w.mu.Unlock()
		switch {
		case failed != nil:
			return failed
		case ok:
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("waited in vain for %s", what)
		}
	}
}

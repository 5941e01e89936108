package demo

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/sluice-proxy/sluice/actors"
	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/supervisor"
)

// witness listens to the proxy and remembers what the story has to prove.
type witness struct {
	mu       sync.Mutex
	changed  chan struct{}
	applied  map[service.Key]map[string]time.Time // when, by domain
	failed   []supervisor.Failed
	stuck    []supervisor.Stuck
	restarts int
	batches  int
	objects  int
}

func newWitness() *witness {
	return &witness{changed: make(chan struct{}), applied: map[service.Key]map[string]time.Time{}}
}

// note runs f under the lock and wakes those who wait.
func (w *witness) note(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
	close(w.changed)
	w.changed = make(chan struct{})
}

// await waits until the condition, asked under the lock, holds.
func (w *witness) await(ctx context.Context, what string, condition func() bool) error {
	for {
		w.mu.Lock()
		held, changed := condition(), w.changed
		w.mu.Unlock()
		if held {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("waited in vain for: %s", what)
		}
	}
}

// appliedSince gives the latest time after t at which every one of n domains
// had applied a fragment of the key; ask under the lock.
func (w *witness) appliedSince(key service.Key, t time.Time, n int) (time.Time, bool) {
	var latest time.Time
	for _, at := range w.applied[key] {
		if at.After(t) {
			n--
			if at.After(latest) {
				latest = at
			}
		}
	}
	return latest, n <= 0
}

// stack is where the first stuck actor stood, empty when none was.
func (w *witness) stack() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.stuck) == 0 {
		return ""
	}
	return w.stuck[0].Stack
}

// Supervisor is for observe.Listener.
func (w *witness) Supervisor(event supervisor.Event) {
	w.note(func() {
		switch e := event.(type) {
		case supervisor.Failed:
			w.failed = append(w.failed, e)
		case supervisor.Stuck:
			w.stuck = append(w.stuck, e)
		case supervisor.Started:
			if e.Again {
				w.restarts++
			}
		}
	})
}

// Aggregator is for observe.Listener.
func (w *witness) Aggregator(event aggregator.Event) {
	w.note(func() {
		switch e := event.(type) {
		case aggregator.BatchWritten:
			w.batches++
			w.objects += e.Receipt.Written.Objects
		case aggregator.Applied:
			if w.applied[e.Key] == nil {
				w.applied[e.Key] = map[string]time.Time{}
			}
			w.applied[e.Key][e.Domain] = e.At
		}
	})
}

// Actors is for observe.Listener.
func (w *witness) Actors(actors.Event) {}

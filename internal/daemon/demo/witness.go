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
	applied  map[service.Key]map[string]aggregator.Applied // the last, by domain
	failed   []supervisor.Failed
	stuck    []supervisor.Stuck
	restarts int
	batches  int
	objects  int
}

func newWitness() *witness {
	return &witness{changed: make(chan struct{}), applied: map[service.Key]map[string]aggregator.Applied{}}
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

// appliedSince gives what was applied last when every one of n domains has applied
// a fragment of the key after t; ask under the lock.
func (w *witness) appliedSince(key service.Key, t time.Time, n int) (last aggregator.Applied, all bool) {
	for _, e := range w.applied[key] {
		if e.At.After(t) {
			n--
			if e.At.After(last.At) {
				last = e
			}
		}
	}
	return last, n <= 0
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
func (w *witness) Supervisor(event supervisor.Event[service.Key]) {
	w.note(func() {
		switch e := event.What.(type) {
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
				w.applied[e.Key] = map[string]aggregator.Applied{}
			}
			w.applied[e.Key][e.Domain] = e
		}
	})
}

// Actors is for observe.Listener.
func (w *witness) Actors(actors.Event) {}

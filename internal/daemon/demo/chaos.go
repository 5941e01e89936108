// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/sluice-proxy/sluice/actors"
	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/internal/daemon/config"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source"
	"github.com/sluice-proxy/sluice/supervisor"
)

// chaos makes one actor misbehave once, at its next message.
type chaos struct {
	release chan struct{}

	mu   sync.Mutex
	key  service.Key
	mode mode
}

type mode uint8

const (
	behave mode = iota
	panics
	hangs
)

func (m mode) String() string { return [...]string{"behave", "panic", "hang"}[m] }

func newChaos() *chaos { return &chaos{release: make(chan struct{})} }

// arm chooses the victim and what it will do.
func (c *chaos) arm(key service.Key, m mode) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.key, c.mode = key, m
}

// end lets a hanging actor go.
func (c *chaos) end() { close(c.release) }

// intercept is called by every actor before each message. A hanging actor
// ignores its context, as one that is stuck in a system call would.
func (c *chaos) intercept(_ context.Context, key service.Key, _ actors.Message) {
	switch c.next(key) {
	case panics:
		panic("the demo made this actor panic")
	case hangs:
		<-c.release
	}
}

// next returns what the actor has to do, and disarms.
func (c *chaos) next(key service.Key) mode {
	c.mu.Lock()
	defer c.mu.Unlock()
	if key != c.key || c.mode == behave {
		return behave
	}
	m := c.mode
	c.mode = behave
	return m
}

// recorder listens to the proxy and records what the demo checks. It implements
// observe.Listener.
type recorder struct {
	mu       sync.Mutex
	changed  chan struct{}
	started  time.Time                                     // of the proxy
	applied  map[service.Key]map[string]aggregator.Applied // the last, by domain
	failed   []supervisor.Failed
	stuck    []supervisor.Stuck
	restarts int
	batches  int
	objects  int
}

func newRecorder() *recorder {
	return &recorder{changed: make(chan struct{}), applied: map[service.Key]map[string]aggregator.Applied{}}
}

// note runs f under the lock and wakes the waiters.
func (r *recorder) note(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
	close(r.changed)
	r.changed = make(chan struct{})
}

// await waits until the condition holds, which it evaluates under the lock.
func (r *recorder) await(ctx context.Context, what string, condition func() bool) error {
	for {
		r.mu.Lock()
		held, changed := condition(), r.changed
		r.mu.Unlock()
		if held {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("timed out waiting for: %s", what)
		}
	}
}

// appliedSince returns the last application of a key's fragments, and whether each of n
// domains has applied one after t. The caller holds the lock.
func (r *recorder) appliedSince(key service.Key, t time.Time, n int) (last aggregator.Applied, all bool) {
	for _, e := range r.applied[key] {
		if e.At.After(t) {
			n--
			if e.At.After(last.At) {
				last = e
			}
		}
	}
	return last, n <= 0
}

// ready is called once the backend is chosen.
func (r *recorder) ready(config.Mode) { r.note(func() { r.started = time.Now() }) }

// stack returns where the first stuck actor stood; empty if none was stuck.
func (r *recorder) stack() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.stuck) == 0 {
		return ""
	}
	return r.stuck[0].Stack
}

// Supervisor records failures, hangs and restarts.
func (r *recorder) Supervisor(event supervisor.Event[service.Key]) {
	r.note(func() {
		switch e := event.What.(type) {
		case supervisor.Failed:
			r.failed = append(r.failed, e)
		case supervisor.Stuck:
			r.stuck = append(r.stuck, e)
		case supervisor.Started:
			if e.Again {
				r.restarts++
			}
		}
	})
}

// Source implements observe.Listener.
func (*recorder) Source(source.Shadowed) {}

// Aggregator records batches and applications.
func (r *recorder) Aggregator(event aggregator.Event) {
	r.note(func() {
		switch e := event.(type) {
		case aggregator.BatchWritten:
			r.batches++
			r.objects += e.Receipt.Written.Objects
		case aggregator.Applied:
			if r.applied[e.Key] == nil {
				r.applied[e.Key] = map[string]aggregator.Applied{}
			}
			r.applied[e.Key][e.Domain] = e
		}
	})
}

// Actors ignores the actors' events.
func (r *recorder) Actors(actors.Event) {}

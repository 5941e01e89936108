// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

type name string

func (n name) String() string { return string(n) }

// fixture runs a supervisor in a bubble of virtual time and keeps its events.
type fixture struct {
	*Supervisor[name]
	mu     sync.Mutex
	events []Event[name]
	stop   func()
}

// start starts one. Listen, if not nil, hears the events too.
func start(t *testing.T, change func(*limits), listen func(Event[name])) *fixture {
	t.Helper()
	f := &fixture{}
	s := New(0, func(e Event[name]) {
		if listen != nil {
			listen(e)
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		f.events = append(f.events, e)
	})
	change(&s.limits)
	f.Supervisor = s
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Run(ctx) }()
	f.stop = func() { cancel(); <-done }
	t.Cleanup(f.stop)
	return f
}

// count returns how often E happened, and the last one with its child.
func count[E Change](f *fixture) (n int, last E, child name) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range f.events {
		if what, ok := e.What.(E); ok {
			n, last, child = n+1, what, e.Child
		}
	}
	return n, last, child
}

// TestSupervisor_RestartsBoundedOverChildren: the restarts per second are limited over all children together.
func TestSupervisor_RestartsBoundedOverChildren(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, func(l *limits) { l.backoffMin, l.parkScore, l.restartsPerSecond = time.Millisecond, 3, 10 }, nil)
		for i := range 100 {
			f.Want(name(fmt.Sprint(i)), func(context.Context, *Lease) (bool, error) { return false, errors.New("all at once") })
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		n, _, _ := count[Started](f)
		if restarts := n - 100; restarts < 40 || restarts > 70 {
			t.Fatalf("%d restarts in 5 s at 10 per second and a burst of 10", restarts)
		}
		f.stop()
	})
}

// TestSupervisor_WakeFollowedByCall: each Wake is followed by a call of the child that begins after it.
func TestSupervisor_WakeFollowedByCall(t *testing.T) {
	f := start(t, func(*limits) {}, nil)
	var posted, seen atomic.Int64
	leases := make(chan *Lease, 1)
	f.Want("a", func(ctx context.Context, lease *Lease) (bool, error) {
		select {
		case leases <- lease:
		default:
		}
		seen.Store(posted.Load())
		return true, ctx.Err()
	})
	lease := <-leases
	for range 2000 {
		want := posted.Add(1)
		lease.Wake()
		for seen.Load() != want {
			runtime.Gosched()
		}
	}
}

// TestSupervisor_RestingChildCostsNoGoroutine checks that a thousand resting children leave no goroutine.
func TestSupervisor_RestingChildCostsNoGoroutine(t *testing.T) {
	f := start(t, func(*limits) {}, nil)
	before := runtime.NumGoroutine()
	var calls atomic.Int32
	const children = 1000
	for i := range children {
		f.Want(name(fmt.Sprint(i)), func(context.Context, *Lease) (bool, error) { calls.Add(1); return true, nil })
	}
	for deadline := time.Now().Add(time.Minute); calls.Load() < children || runtime.NumGoroutine() > before; {
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines before, %d for %d children that rest", before, runtime.NumGoroutine(), children)
		}
		time.Sleep(time.Millisecond)
	}
}

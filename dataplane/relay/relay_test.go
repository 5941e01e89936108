package relay

import (
	"errors"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestTasksReportsPanicsAndGoesOn(t *testing.T) {
	reports := make(chan Failure, 1)
	c := newTasks(func(f Failure) { reports <- f })
	ended := make(chan error, 1)
	if !c.run("tcp/127.0.0.1:1", func() error { panic(io.ErrUnexpectedEOF) }, func(err error) { ended <- err }) {
		t.Fatal("the work was not started")
	}
	f := <-reports
	panicked, ok := errors.AsType[*PanicError](f.Err)
	if !ok || f.Listener != "tcp/127.0.0.1:1" || !errors.Is(f.Err, io.ErrUnexpectedEOF) ||
		!strings.Contains(string(panicked.Stack), "relay_test.go") {
		t.Errorf("reported %+v", f)
	}
	if err := <-ended; !errors.Is(err, f.Err) {
		t.Errorf("ended with %v, reported %v", err, f.Err)
	}
	if !c.run("", func() error { return nil }, func(err error) { ended <- err }) || <-ended != nil {
		t.Error("a panic has ended the tasks")
	}
	c.close()
}

func TestTasksWaitsForItsOwn(t *testing.T) {
	c := newTasks(func(f Failure) { t.Errorf("reported %+v", f) })
	done := false
	c.run("", func() error {
		<-c.ctx.Done()
		time.Sleep(20 * time.Millisecond)
		done = true
		return nil
	}, func(error) {})
	c.close()
	if !done {
		t.Error("close did not wait")
	}
	if c.run("", func() error { return nil }, func(error) {}) {
		t.Error("a closed tasks takes work")
	}
}

func TestBudgetBoundsHereAndAbove(t *testing.T) {
	all := NewBudget(3, nil)
	a, b := NewBudget(2, all), NewBudget(2, all)
	for i, c := range []struct {
		from *Budget
		want bool
	}{{a, true}, {a, true}, {a, false}, {b, true}, {b, false}} {
		if got := c.from.Take(); got != c.want {
			t.Errorf("take %d: got %v, want %v", i, got, c.want)
		}
	}
	a.Give()
	if !b.Take() {
		t.Error("another budget cannot take what one has given back")
	}
	if b.Take() || a.used.Load() != 1 || b.used.Load() != 2 || all.used.Load() != 3 {
		t.Errorf("in use: %d and %d, together %d; want 1 and 2, together 3", a.used.Load(), b.used.Load(), all.used.Load())
	}
}

// TestBudgetUnderPressure: the bound is never exceeded, and none is lost.
func TestBudgetUnderPressure(t *testing.T) {
	const bound = 3
	all := NewBudget(bound, nil)
	var held, most atomic.Int64
	var running sync.WaitGroup
	for range 8 {
		part := NewBudget(2, all)
		running.Go(func() {
			for range 5000 {
				if !part.Take() {
					continue
				}
				now := held.Add(1)
				for seen := most.Load(); now > seen && !most.CompareAndSwap(seen, now); seen = most.Load() {
				}
				held.Add(-1)
				part.Give()
			}
		})
	}
	running.Wait()
	if most.Load() > bound || most.Load() == 0 || all.used.Load() != 0 {
		t.Errorf("up to %d were held of %d, and %d are left in use", most.Load(), bound, all.used.Load())
	}
}

// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// hanging returns a body that works on its message until release is closed, whatever its
// context says.
func hanging(release <-chan struct{}) Run {
	return func(_ context.Context, lease *Lease) (bool, error) {
		lease.Begin()
		defer lease.End()
		<-release
		return false, nil
	}
}

// polite returns a body that works until its context ends.
func polite(ctx context.Context, lease *Lease) (bool, error) {
	lease.Begin()
	defer lease.End()
	<-ctx.Done()
	return false, ctx.Err()
}

// TestSupervisor_StopBounded: a hanging child delays the stop by at most two seconds. It is named in an event and
// fenced before Run returns.
func TestSupervisor_StopBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, func(*limits) {}, nil)
		release := make(chan struct{})
		var hung *Lease
		f.Want("hangs", func(ctx context.Context, lease *Lease) (bool, error) {
			hung = lease
			return hanging(release)(ctx, lease)
		})
		f.Want("polite", polite)
		f.Want("rests", func(context.Context, *Lease) (bool, error) { return true, nil })
		time.Sleep(time.Second)
		began := time.Now()
		stopped := make(chan struct{})
		go func() { f.stop(); close(stopped) }()
		select {
		case <-stopped:
		case <-time.After(24 * time.Hour):
			t.Error("not stopped after a day")
			close(release)
			<-stopped
			return
		}
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("stopped after %v", took)
		}
		n, last, child := count[Unstopped](f)
		if n != 1 || child != "hangs" || !strings.Contains(last.Stack, "hanging") {
			t.Errorf("%d children did not stop, the last one %q, stack %.200s", n, child, last.Stack)
		}
		if !hung.Fenced() {
			t.Error("a child that did not stop is not fenced")
		}
		close(release)
	})
}

// TestSupervisor_ObedientChildrenStopAtOnce: stopping children that obey their context takes no time.
func TestSupervisor_ObedientChildrenStopAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, func(*limits) {}, nil)
		for i := range 100 {
			f.Want(name(fmt.Sprint(i)), polite)
		}
		time.Sleep(time.Second)
		began := time.Now()
		f.stop()
		if took := time.Since(began); took > 0 {
			t.Errorf("stopped after %v", took)
		}
	})
}

// TestSupervisor_ChildHangsEachTime: a child that always hangs leaves only a few goroutines per hour, even if its input
// changes every second.
func TestSupervisor_ChildHangsEachTime(t *testing.T) {
	for input, most := range map[string]int{"rests": 6, "changes": 8} {
		synctest.Test(t, func(t *testing.T) {
			f := start(t, func(*limits) {}, nil)
			release := make(chan struct{})
			f.Want("a", hanging(release))
			for range 3600 {
				time.Sleep(time.Second)
				if input == "changes" {
					f.Nudge("a")
				}
			}
			n, last, _ := count[Stuck](f)
			t.Logf("input %s: %d abandoned goroutines after an hour", input, last.Abandoned)
			if n != last.Abandoned || n < 3 || n > most {
				t.Errorf("input %s: hung %d times in an hour, %d abandoned, want 3 to %d", input, n, last.Abandoned, most)
			}
			close(release)
			synctest.Wait()
			f.stop()
		})
	}
}

// TestSupervisor_HungChildReturnsRetriedSoon: a parked child whose hanging goroutine returned is started soon after new
// input.
func TestSupervisor_HungChildReturnsRetriedSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, func(*limits) {}, nil)
		release, healthy := make(chan struct{}), atomic.Bool{}
		f.Want("a", func(ctx context.Context, lease *Lease) (bool, error) {
			if healthy.Load() {
				return true, nil
			}
			return hanging(release)(ctx, lease)
		})
		time.Sleep(time.Minute)
		if n, last, _ := count[Parked](f); n != 1 {
			t.Fatalf("parked %d times, %+v", n, last)
		}
		healthy.Store(true)
		close(release)
		time.Sleep(time.Second)
		began := time.Now()
		f.Nudge("a")
		synctest.Wait()
		time.Sleep(time.Second)
		if n, _, _ := count[Started](f); n != 3 {
			t.Errorf("started %d times %v after the change", n, time.Since(began))
		}
		f.stop()
	})
}

// TestSupervisor_TooManyHangingEndsRun: Run returns an error when too many goroutines hang, because only the end of the
// process can end them.
func TestSupervisor_TooManyHangingEndsRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(0, func(Event[name]) {})
		release := make(chan struct{})
		failed := make(chan error, 1)
		go func() { failed <- s.Run(t.Context()) }()
		for i := range 9 {
			s.Want(name(fmt.Sprint("child", i)), hanging(release))
		}
		select {
		case err := <-failed:
			if err == nil || !strings.Contains(err.Error(), "9 goroutines hang") || !strings.Contains(err.Error(), "child8 (1)") {
				t.Errorf("error %v", err)
			}
		case <-time.After(time.Hour):
			t.Error("still running after an hour")
		}
		close(release)
	})
}

// TestSupervisor_NewChildDoesNotWaitForFailing: a new child starts immediately, even if thousands of children fail and
// wait for the limit on restarts.
func TestSupervisor_NewChildDoesNotWaitForFailing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, func(*limits) {}, nil)
		for i := range 10_000 {
			f.Want(name(fmt.Sprint(i)), func(context.Context, *Lease) (bool, error) { return false, errors.New("all at once") })
		}
		time.Sleep(time.Second)
		began := time.Now()
		ran := make(chan struct{})
		f.Want("new", func(context.Context, *Lease) (bool, error) { close(ran); return true, nil })
		<-ran
		if took := time.Since(began); took > 100*time.Millisecond {
			t.Errorf("the new child started after %v", took)
		}
		f.stop()
	})
}

// TestSupervisor_InputDuringLastFailure: input that arrives during the failure that parks a child makes the supervisor
// try the child again soon.
func TestSupervisor_InputDuringLastFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, func(l *limits) { l.parkScore = 1 }, nil)
		var fixed atomic.Bool
		began := time.Now()
		served := make(chan struct{})
		f.Want("a", func(context.Context, *Lease) (bool, error) {
			if fixed.Load() {
				close(served)
				return true, nil
			}
			time.Sleep(5 * time.Second)
			return false, errors.New("no")
		})
		time.Sleep(time.Second)
		fixed.Store(true)
		f.Nudge("a")
		<-served
		if took := time.Since(began); took > 7*time.Second {
			t.Errorf("served after %v", took)
		}
		f.stop()
	})
}

// TestSupervisor_HungIncarnationsOfDeletedChild: hanging incarnations of a deleted child do not count for the next
// child with the same key, also when they return.
func TestSupervisor_HungIncarnationsOfDeletedChild(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, func(*limits) {}, nil)
		release := make(chan struct{})
		hangsOnce := func(release chan struct{}, ended bool) {
			first := true
			f.Want("a", func(ctx context.Context, lease *Lease) (bool, error) {
				if first {
					first = false
					return hanging(release)(ctx, lease)
				}
				return ended, nil
			})
			time.Sleep(time.Minute)
		}
		for range 4 {
			hangsOnce(release, false)
		}
		again := make(chan struct{})
		hangsOnce(again, true)
		close(release)
		time.Sleep(time.Second)
		f.stop()
		if c := f.children["a"]; c == nil || c.hung != 1 {
			t.Errorf("%+v, want one hanging incarnation", c)
		}
		close(again)
	})
}

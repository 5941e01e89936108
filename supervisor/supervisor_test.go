package supervisor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
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

func start(t *testing.T, change func(*limits)) *fixture {
	t.Helper()
	f := &fixture{}
	s := New(0, func(e Event[name]) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.events = append(f.events, e)
	})
	change(&s.limits)
	f.Supervisor = s
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); s.Run(ctx) }()
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

// forever is a child that works until it is stopped.
func forever(ctx context.Context, _ *Lease) (bool, error) {
	<-ctx.Done()
	return false, ctx.Err()
}

func TestAFailingChildIsRestartedWithItsOwnBackoffAndParked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, func(l *limits) {
			l.backoffMin, l.parkScore, l.parkRetry, l.scoreHalfLife = time.Second, 3.5, time.Hour, time.Hour
		})
		began := time.Now()
		var starts []time.Duration
		f.Want("bad", func(context.Context, *Lease) (bool, error) {
			starts = append(starts, time.Since(began))
			panic("poison")
		})
		f.Want("good", forever)
		time.Sleep(time.Minute)
		synctest.Wait()
		// Score 1, 2 and nearly 3 pause for 1 s, 2 s and nearly 4 s; the fourth
		// failure parks.
		if len(starts) != 4 || starts[1] != time.Second || starts[2]-starts[1] > 2*time.Second {
			t.Fatalf("started at %v", starts)
		}
		if n, parked, child := count[Parked](f); n != 1 || child != "bad" || !strings.Contains(parked.Err.Error(), "poison") {
			t.Fatalf("parked %d times, last %+v", n, parked)
		}
		_, failed, _ := count[Failed](f)
		var panicked *PanicError
		if !errors.As(failed.Err, &panicked) || !strings.Contains(string(panicked.Stack), "supervisor_test.go") {
			t.Fatalf("the panic's stack is lost: %v", failed.Err)
		}
		// Its neighbour never noticed.
		if n, _, _ := count[Started](f); n != 4+1 {
			t.Fatalf("%d starts, want 4 of bad and 1 of good", n)
		}
		// A parked child is tried again when the time is up.
		time.Sleep(time.Hour)
		synctest.Wait()
		if len(starts) < 5 {
			t.Fatalf("parked child was not tried again: %v", starts)
		}
		f.stop()
	})
}

func TestANudgeTriesAParkedChildAgainAtMostOncePerSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, func(l *limits) { l.parkScore, l.scoreHalfLife = 1, time.Hour })
		starts := 0
		f.Want("bad", func(context.Context, *Lease) (bool, error) { starts++; return false, errors.New("no") })
		synctest.Wait()
		for range 100 {
			f.Nudge("bad")
			time.Sleep(100 * time.Millisecond)
		}
		synctest.Wait()
		if starts < 9 || starts > 12 {
			t.Fatalf("%d starts in ten seconds of nudges", starts)
		}
		f.stop()
	})
}

func TestScoresDecay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, func(l *limits) {
			l.parkScore, l.scoreHalfLife, l.backoffMin, l.backoffMax = 2, time.Minute, 20*time.Minute, time.Hour
		})
		f.Want("seldom", func(context.Context, *Lease) (bool, error) { return false, errors.New("now and then") })
		time.Sleep(5 * time.Hour)
		synctest.Wait()
		if n, _, _ := count[Parked](f); n != 0 {
			t.Fatal("parked although each failure was forgotten before the next")
		}
		f.stop()
	})
}

func TestAStuckChildIsFencedAndReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, func(l *limits) { l.messageDeadline = time.Second })
		release := make(chan struct{})
		var leases []*Lease
		f.Want("slow", func(ctx context.Context, lease *Lease) (bool, error) {
			leases = append(leases, lease)
			if len(leases) == 1 {
				lease.Begin()
				hangHere(release)
				lease.End()
				return false, nil
			}
			return forever(ctx, lease)
		})
		f.Want("idle", forever) // an idle child is never late
		time.Sleep(3 * time.Second)
		synctest.Wait()
		n, stuck, child := count[Stuck](f)
		if n != 1 || child != "slow" || stuck.Abandoned != 1 {
			t.Fatalf("stuck %d times, last %+v", n, stuck)
		}
		if !strings.Contains(stuck.Stack, "hangHere") {
			t.Fatalf("the captured stack does not say where it hangs:\n%s", stuck.Stack)
		}
		if len(leases) != 2 || !leases[0].Fenced() || leases[1].Fenced() {
			t.Fatalf("%d incarnations; the first must be fenced, the second not", len(leases))
		}
		if leases[1].Incarnation() <= leases[0].Incarnation() {
			t.Fatal("a replacement must outrank what it replaces")
		}
		close(release)
		synctest.Wait()
		if n, returned, _ := count[Returned](f); n != 1 || returned.Abandoned != 0 {
			t.Fatalf("returned %d times, last %+v", n, returned)
		}
		if n, _, _ := count[Started](f); n != 3 {
			t.Fatalf("%d starts: the late return must not disturb the replacement", n)
		}
		f.stop()
	})
}

//go:noinline
func hangHere(release chan struct{}) { <-release }

func TestStoppingDoesNotWaitForTheAbandoned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, func(l *limits) { l.messageDeadline, l.parkScore = time.Second, 1 })
		release := make(chan struct{})
		f.Want("dead", func(_ context.Context, lease *Lease) (bool, error) {
			lease.Begin()
			<-release
			return false, nil
		})
		time.Sleep(2 * time.Second)
		f.stop()
		close(release) // the bubble must end without goroutines
	})
}

func TestAChildWantedAnewWhileItRetiresStartsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, func(*limits) {})
		leave := make(chan struct{})
		f.Want("key", func(context.Context, *Lease) (bool, error) { <-leave; return false, nil })
		synctest.Wait()
		second := false
		f.Want("key", func(context.Context, *Lease) (bool, error) { second = true; return false, nil })
		synctest.Wait()
		if second {
			t.Fatal("two incarnations at once")
		}
		close(leave)
		synctest.Wait()
		if !second {
			t.Fatal("the new wish was lost")
		}
		if n, _, _ := count[Ended](f); n != 2 {
			t.Fatalf("%d ends, want 2", n)
		}
		f.stop()
	})
}

func TestRestartsAreBoundedOverAllChildren(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, func(l *limits) { l.backoffMin, l.parkScore, l.restartsPerSecond = time.Millisecond, 3, 10 })
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

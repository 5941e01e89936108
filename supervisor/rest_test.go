package supervisor

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// sleeper is a child that counts its calls and rests after each.
type sleeper struct {
	lease *Lease
	calls int
	// during, if set, runs within each call.
	during func(ctx context.Context)
}

func (s *sleeper) run(ctx context.Context, lease *Lease) (bool, error) {
	s.lease = lease
	s.calls++
	if s.during != nil {
		lease.Begin()
		s.during(ctx)
		lease.End()
	}
	return ctx.Err() == nil, ctx.Err()
}

func TestAChildRestsUntilItIsWoken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, func(*limits) {})
		s := &sleeper{}
		f.Want("a", s.run)
		time.Sleep(time.Hour)
		synctest.Wait()
		if s.calls != 1 {
			t.Fatalf("%d calls of a child that rests, want 1", s.calls)
		}
		first := s.lease
		for want := 2; want < 5; want++ {
			first.Wake()
			synctest.Wait()
			if s.calls != want || s.lease != first {
				t.Fatalf("%d calls, want %d, all of one incarnation", s.calls, want)
			}
		}
		if n, _, _ := count[Started](f); n != 1 {
			t.Errorf("%d starts, want 1", n)
		}
		f.stop() // waits for no child that rests
		first.Wake()
		synctest.Wait()
		if s.calls != 4 {
			t.Error("called after the supervisor has ended")
		}
	})
}

func TestACallWhileAChildWorksIsNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, func(*limits) {})
		s := &sleeper{during: func(context.Context) { time.Sleep(time.Second) }}
		f.Want("a", s.run)
		synctest.Wait()
		for range 3 {
			s.lease.Wake()
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if s.calls != 2 {
			t.Errorf("%d calls, want one more for all that came during the first", s.calls)
		}
		f.stop()
	})
}

func TestAChildThatFailsAfterARestIsRestarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, func(l *limits) { l.messageDeadline = time.Second })
		release := make(chan struct{})
		s := &sleeper{}
		f.Want("a", s.run)
		synctest.Wait()
		first := s.lease
		s.during = func(context.Context) { s.during = nil; panic("poison") }
		first.Wake()
		time.Sleep(time.Second)
		synctest.Wait()
		if s.lease == first || s.calls != 3 {
			t.Fatalf("%d calls; want a restart after the panic", s.calls)
		}
		second := s.lease
		cancelled := false
		s.during = func(ctx context.Context) {
			s.during = nil
			<-ctx.Done()
			cancelled = true
			hangHere(release)
		}
		second.Wake()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if n, _, _ := count[Stuck](f); n != 1 || !cancelled || !second.Fenced() || s.lease == second {
			t.Fatalf("stuck %d times, cancelled %v, fenced %v; want a replacement", n, cancelled, second.Fenced())
		}
		close(release)
		synctest.Wait()
		if n, returned, _ := count[Returned](f); n != 1 || returned.Abandoned != 0 {
			t.Fatalf("returned %d times, last %+v", n, returned)
		}
		f.stop()
	})
}

// TestEveryWakeIsFollowedByACall: whatever the order, the last call begins after it.
func TestEveryWakeIsFollowedByACall(t *testing.T) {
	f := start(t, func(*limits) {})
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

// TestAChildThatRestsCostsNoGoroutine counts what a thousand children that rest leave.
func TestAChildThatRestsCostsNoGoroutine(t *testing.T) {
	f := start(t, func(*limits) {})
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

package kube

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// lineRig is a line to a server of which the test says how it answers the probe.
type lineRig struct {
	*line
	mu     sync.Mutex
	answer probed
	err    error
	probes []time.Time
	ctx    context.Context
}

var errGone = errors.New("gone")

// onLine runs a test on a line, in a bubble, so that time is exact.
func onLine(t *testing.T, test func(*lineRig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		r := &lineRig{ctx: ctx, answer: probed{ready: true}}
		r.line = newLine(func(ctx context.Context) (probed, error) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.probes = append(r.probes, time.Now())
			return r.answer, r.err
		}, func(error) {})
		go r.run(ctx)
		test(r)
	})
}

func (r *lineRig) set(answer probed, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer, r.err, r.probes = answer, err, nil
}

func (r *lineRig) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.probes)
}

// passes sends a request for a resource, and gives when it may go.
func (r *lineRig) passes(resource string) <-chan time.Time {
	at := make(chan time.Time, 1)
	go func() {
		if r.await(r.ctx, resource, func(error) {}) == nil {
			at <- time.Now()
		}
	}()
	return at
}

// sleeps returns when somebody wakes who sleeps for a duration.
func (r *lineRig) sleeps(d time.Duration) <-chan time.Time {
	at := make(chan time.Time, 1)
	wake := r.wake()
	go func() { r.sleep(r.ctx, d, wake); at <- time.Now() }()
	return at
}

// However long the server was away, requests go within 1.5 s of its being back, and
// so does everybody who sleeps. Meanwhile there is one probe at a time, each 0.5 to
// 1.5 s.
func TestALineIsTakenUpAgain(t *testing.T) {
	for _, away := range []time.Duration{time.Second, 10 * time.Second, 10 * time.Minute} {
		onLine(t, func(r *lineRig) {
			r.set(probed{}, errGone)
			r.lost(services, errGone)
			asleep := r.sleeps(time.Hour)
			last := time.Now()
			for time.Since(last) < away {
				time.Sleep(time.Second)
			}
			held := r.passes(endpointSlices) // after holdMax it would go by itself
			synctest.Wait()
			if probes := r.count(); probes < int(away/(1500*time.Millisecond)) || probes > int(away/(500*time.Millisecond)) {
				t.Errorf("%d probes in %v", probes, away)
			}
			r.set(probed{ready: true}, nil)
			back := time.Now()
			for what, at := range map[string]<-chan time.Time{"a request": held, "a sleeper": asleep} {
				if took := (<-at).Sub(back); took > 1500*time.Millisecond {
					t.Errorf("away for %v: %s goes %v after the server is back", away, what, took)
				}
			}
			r.answered(services)
			r.answered(endpointSlices)
			time.Sleep(2 * time.Second)
			synctest.Wait()
			before := r.count()
			time.Sleep(time.Hour)
			if got := r.count(); got != before {
				t.Errorf("%d probes without any trouble", got-before)
			}
		})
	}
}

// Nodes do not come back at one moment: their probes are spread over a second.
func TestProbesAreSpread(t *testing.T) {
	const nodes = 1000
	var tenths [20]int
	l := newLine(nil, nil)
	for range nodes {
		tenths[l.pause()/(100*time.Millisecond)]++
	}
	for tenth, got := range tenths {
		if want := nodes / 10; tenth < 5 || tenth >= 15 {
			if got != 0 {
				t.Errorf("%d nodes probe after %d00 ms", got, tenth)
			}
		} else if got < want/2 || got > 2*want {
			t.Errorf("of %d nodes %d probe between %d00 and %d00 ms", nodes, got, tenth, tenth+1)
		}
	}
}

// A server that answers, but is not ready, is left alone: requests are held back for
// a while, and nobody who sleeps is woken until it is ready.
func TestAServerThatIsNotReadyIsLeftAlone(t *testing.T) {
	onLine(t, func(r *lineRig) {
		r.set(probed{}, errGone)
		r.lost(services, errGone)
		time.Sleep(10 * time.Second)
		held, asleep := r.passes(services), r.sleeps(time.Hour)
		r.set(probed{}, nil)
		began := time.Now()
		if waited := (<-held).Sub(began); waited < unreadyMax || waited > unreadyMax+3*time.Second {
			t.Errorf("held back for %v, want about %v: its opinion of itself may be wrong for good", waited, unreadyMax)
		}
		r.refused(services)
		time.Sleep(time.Minute)
		if len(asleep) != 0 {
			t.Error("somebody was woken for a server that is not ready")
		}
		r.set(probed{ready: true}, nil)
		ready := time.Now()
		if took := (<-asleep).Sub(ready); took > 1500*time.Millisecond {
			t.Errorf("woken %v after the server is ready", took)
		}
	})
}

// A server that says it is ready and refuses wakes nobody: what it refuses is asked
// for as backoff and Retry-After say. It says when it wants to be probed.
func TestARefusalWakesNobody(t *testing.T) {
	onLine(t, func(r *lineRig) {
		r.refused(services)
		asleep := r.sleeps(10 * time.Minute)
		time.Sleep(9 * time.Minute)
		if len(asleep) != 0 {
			t.Error("somebody was woken")
		}
		if probes := r.count(); probes > 9*60/5 {
			t.Errorf("%d probes in 9 minutes of a server that is ready", probes)
		}
		r.set(probed{after: 20 * time.Second}, nil)
		time.Sleep(2 * time.Minute)
		if probes := r.count(); probes > 7 {
			t.Errorf("%d probes in 2 minutes, want one each 20 s", probes)
		}
	})
}

// Where the probe is answered and requests are not, they go less and less often.
func TestReleasesInVainBecomeRare(t *testing.T) {
	onLine(t, func(r *lineRig) {
		r.lost(services, errGone)
		goes := 0
		for began := time.Now(); time.Since(began) < 5*time.Minute; goes++ {
			<-r.passes(services)
			r.lost(services, errGone)
		}
		if goes < 20 || goes > 40 {
			t.Errorf("%d requests in 5 minutes, want one each 10 s or so", goes)
		}
	})
}

// Whatever the probe says, a request goes once a minute.
func TestTheProbeCannotLockOut(t *testing.T) {
	onLine(t, func(r *lineRig) {
		r.set(probed{}, errGone)
		r.lost(services, errGone)
		began := time.Now()
		if waited := (<-r.passes(services)).Sub(began); waited != holdMax {
			t.Errorf("held back for %v", waited)
		}
	})
}

// Of a request without an answer the probe decides: a slow one goes on, and one to a
// server that is silent ends.
func TestASlowRequestIsNoOutage(t *testing.T) {
	onLine(t, func(r *lineRig) {
		ctx, end := context.WithCancelCause(r.ctx)
		open := r.begin(end)
		time.Sleep(time.Minute)
		if ctx.Err() != nil || r.count() == 0 {
			t.Fatalf("after %d probes the request is over: %v", r.count(), context.Cause(ctx))
		}
		r.set(probed{}, errGone)
		<-ctx.Done()
		r.done(open)
		if _, silent := context.Cause(ctx).(*silentError); !silent {
			t.Errorf("ended because of %v", context.Cause(ctx))
		}
	})
}

// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-proxy/sluice/dataplane/traffic"
	"github.com/sluice-proxy/sluice/service"
)

var (
	web      = Of{Service: service.Key{Namespace: "shop", Name: "web"}}
	endpoint = Of{Service: web.Service, Endpoint: netip.MustParseAddrPort("10.0.0.5:8080")}
)

// share is how much longer the pause after a reading is.
const share = 49

func connections(n uint64) traffic.At { return traffic.At{Counts: traffic.Counts{Connections: n}} }

// backend is a backend whose totals a test sets.
type backend struct {
	mu     sync.Mutex
	totals Amounts
	err    error
	takes  time.Duration // a reading
	reads  int
}

func (b *backend) set(of Of, total uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.totals[of] = connections(total)
}

func (b *backend) fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.err = err
}

func (b *backend) read(ctx context.Context) (Amounts, error) {
	select {
	case <-ctx.Done():
	case <-time.After(b.takes):
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reads++
	copied := Amounts{}
	copied.add(b.totals)
	return copied, b.err
}

// recording runs a test with a recorder in a bubble with a clock that does not wait.
func recording(t *testing.T, b *backend, test func(ctx context.Context, r *Recorder)) {
	synctest.Test(t, func(t *testing.T) {
		r := New(b.read)
		go r.Run(t.Context())
		synctest.Wait()
		test(t.Context(), r)
	})
}

func TestRecorder_Since(t *testing.T) {
	b := &backend{totals: Amounts{web: connections(1000)}}
	recording(t, b, func(ctx context.Context, r *Recorder) {
		began := time.Now()
		for _, total := range []uint64{1001, 1003, 1006, 1010} { // one step each
			b.set(web, total)
			if total == 1006 {
				b.set(endpoint, 3)
			}
			time.Sleep(Step)
			synctest.Wait()
		}
		time.Sleep(time.Second)
		b.set(web, 1015)
		for _, test := range []struct {
			ago      time.Duration
			web      uint64
			endpoint uint64
			from     time.Duration
		}{
			{5 * time.Second, 9, 0, 45 * time.Second},
			{20 * time.Second, 12, 3, 30 * time.Second},
			{time.Hour, 15, 3, 0},
		} {
			used, err := r.Since(ctx, time.Now().Add(-test.ago))
			if err != nil {
				t.Fatal(err)
			}
			if got := used.Amounts[web].Connections; got != test.web {
				t.Errorf("since %v: %d connections of the Service, want %d", test.ago, got, test.web)
			}
			if got := used.Amounts[endpoint].Connections; got != test.endpoint {
				t.Errorf("since %v: %d connections of the endpoint, want %d", test.ago, got, test.endpoint)
			}
			if got := used.From.Sub(began); got != test.from {
				t.Errorf("since %v: from %v, want %v", test.ago, got, test.from)
			}
		}
	})
}

// TestRecorder_CountersBeginAgain: counters that begin again at zero continue the sum.
func TestRecorder_CountersBeginAgain(t *testing.T) {
	b := &backend{totals: Amounts{web: connections(1000)}}
	recording(t, b, func(ctx context.Context, r *Recorder) {
		b.set(web, 7)
		b.set(endpoint, 3)
		used, err := r.Since(ctx, time.Now().Add(-Kept))
		if err != nil || used.Amounts[web].Connections != 7 {
			t.Errorf("got %v, %v, want 7 connections", used.Amounts, err)
		}
		b.set(web, 9)
		if _, err := r.Since(ctx, time.Now()); err != nil || r.Sum().Connections != 9 {
			t.Errorf("the sum is %+v, %v, want 9 connections", r.Sum(), err)
		}
	})
}

// TestRecorder_HistoryBounded: the history is limited in time and in size.
func TestRecorder_HistoryBounded(t *testing.T) {
	b := &backend{totals: Amounts{}}
	recording(t, b, func(ctx context.Context, r *Recorder) {
		for n := range uint64(200) {
			b.set(web, n+1)
			time.Sleep(Step)
			synctest.Wait()
		}
		steps := r.Steps()
		if kept := steps[len(steps)-1].To.Sub(steps[0].From); kept < Kept || kept > Kept+2*Step {
			t.Errorf("kept %v, want %v", kept, Kept)
		}
		for i := 1; i < len(steps); i++ {
			if !steps[i].From.Equal(steps[i-1].To) {
				t.Errorf("step %d begins at %v, and the one before ended at %v", i, steps[i].From, steps[i-1].To)
			}
		}
	})
	many := Amounts{}
	for n := range amountsMax/2 + 1 {
		many[Of{Endpoint: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)}), 80)}] = connections(1)
	}
	var steps []Used
	r, now := New(nil), time.Now()
	for n := range 3 {
		from := now.Add(time.Duration(n) * Step)
		steps = r.keep(steps, Used{From: from, To: from.Add(Step), Amounts: many})
	}
	if r.kept > amountsMax || len(steps) != 1 {
		t.Errorf("%d steps with %d amounts are kept, want at most %d", len(steps), r.kept, amountsMax)
	}
}

// TestRecorder_QueriesAddNoSteps: frequent queries cause readings, but no steps.
func TestRecorder_QueriesAddNoSteps(t *testing.T) {
	b := &backend{totals: Amounts{}}
	recording(t, b, func(ctx context.Context, r *Recorder) {
		for range 10 * int(Step/time.Second) {
			time.Sleep(time.Second)
			if _, err := r.Since(ctx, time.Now()); err != nil {
				t.Fatal(err)
			}
		}
		if steps := r.Steps(); len(steps) > 11 {
			t.Errorf("%d steps in %v, want one per %v", len(steps), 10*Step, Step)
		}
	})
}

// TestRecorder_QueriesDoNotHurryReadings: readings of a second each take at most 2 % of the time, regardless of the
// number of queries.
func TestRecorder_QueriesDoNotHurryReadings(t *testing.T) {
	b := &backend{totals: Amounts{}, takes: time.Second}
	recording(t, b, func(ctx context.Context, r *Recorder) {
		for range 10 * share {
			if _, err := r.Since(ctx, time.Now().Add(-Kept)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		if most := 12; b.reads > most {
			t.Errorf("%d readings, want at most %d", b.reads, most)
		}
	})
}

// TestRecorder_Refresh: Refresh takes a reading if the last ones took at most 2 % of the time, and waits up to a second
// for other readings.
func TestRecorder_Refresh(t *testing.T) {
	const took = 100 * time.Millisecond
	b := &backend{totals: Amounts{}, takes: took}
	recording(t, b, func(ctx context.Context, r *Recorder) {
		refresh := func(want int) {
			t.Helper()
			r.Refresh(ctx)
			b.mu.Lock()
			defer b.mu.Unlock()
			if b.reads != want {
				t.Errorf("%d readings, want %d", b.reads, want)
			}
		}
		refresh(1) // the first one is in progress
		refresh(1) // the next one may begin in 5 s
		time.Sleep(share*took - refreshPatience/2 - time.Millisecond)
		refresh(1)
		time.Sleep(2 * time.Millisecond)
		refresh(2)
		b.takes = cheap
		time.Sleep(share * took)
		refresh(3)
		refresh(4)
	})
}

func TestRecorder_FailedReadings(t *testing.T) {
	failure := errors.New("no answer from the kernel")
	b := &backend{totals: Amounts{web: connections(5)}}
	recording(t, b, func(ctx context.Context, r *Recorder) {
		b.fail(failure)
		b.set(web, 6)
		if _, err := r.Since(ctx, time.Now()); !errors.Is(err, failure) {
			t.Errorf("got %v, want %v", err, failure)
		}
		time.Sleep(3 * Step)
		b.fail(nil)
		used, err := r.Since(ctx, time.Now().Add(-Step))
		if err != nil || used.Amounts[web].Connections != 1 {
			t.Errorf("got %v, %v, want the connection from before the failure", used.Amounts, err)
		}
	})
}

// TestRecorder_QueriesEndWithRun: queries fail after the recorder has ended.
func TestRecorder_QueriesEndWithRun(t *testing.T) {
	r := New((&backend{}).read)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r.Run(ctx)
	if _, err := r.Since(t.Context(), time.Now()); !errors.Is(err, ErrEnded) {
		t.Errorf("got %v, want %v", err, ErrEnded)
	}
}

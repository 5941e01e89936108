// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sluice-proxy/sluice/bench/rig"
)

// rates are the changes per second.
var rates = []int{20, 100}

func churnStep(rate int) string { return fmt.Sprintf("%d changes/s", rate) }

// measuredPerSecond is how many of the changes are followed to the first answer.
const measuredPerSecond = 4

// churn replaces endpoints at given rates.
func (r *run) churn(ctx context.Context) error {
	minutes := r.minutes / float64(2*len(rates)*r.rounds)
	for _, rate := range rates {
		if err := r.churnAt(ctx, rate, time.Duration(minutes*float64(time.Minute))); err != nil {
			return err
		}
		if err := r.idle(ctx); err != nil {
			return err
		}
	}
	return nil
}

// followed are the writes whose way to the first answer is measured.
type followed struct {
	mu   sync.Mutex
	took []time.Duration
	// writes is how long the API server took for each write, late how much later than planned the
	// client began it, which tells how busy the machine was.
	writes []time.Duration
	late   []time.Duration
	beyond int
	// failures counts the writes that the API server did not take, of which failed is the last.
	failures int
	failed   error
	underway sync.WaitGroup
	// writing is how many writes have not been answered.
	writing int
}

// await waits until fewer than so many writes are under way.
func (f *followed) await(ctx context.Context, most int) bool {
	for {
		f.mu.Lock()
		writing := f.writing
		f.mu.Unlock()
		if writing < most {
			return ctx.Err() == nil
		}
		if !rig.Sleep(ctx, time.Millisecond) {
			return false
		}
	}
}

// follow measures how long it takes from now until the answer is right, and then calls done.
func (f *followed) follow(ctx context.Context, r *run, q question, done func(time.Time)) {
	began := time.Now()
	f.underway.Go(func() {
		limit, cancel := context.WithDeadline(ctx, began.Add(r.limit))
		defer cancel()
		at, ok := r.network.until(limit, q, began)
		f.mu.Lock()
		if ok {
			f.took = append(f.took, at.Sub(began))
		} else {
			f.beyond++
		}
		f.mu.Unlock()
		done(at)
	})
}

func (r *run) churnAt(ctx context.Context, rate int, duration time.Duration) error {
	step := churnStep(rate)
	rig.Progress("  %s, for %s", step, rig.Round(duration))
	w, err := r.begin(step)
	if err != nil {
		return err
	}
	f, busy := &followed{}, &sync.Map{}
	made := 0
	for ; time.Since(w.began) < duration; made++ {
		// What is late is made up for, so that the rate is kept.
		due := w.began.Add(time.Duration(made) * time.Second / time.Duration(rate))
		if !rig.Sleep(ctx, time.Until(due)) {
			return ctx.Err()
		}
		f.late = append(f.late, time.Since(due))
		r.changeOne(ctx, f, busy, made%(rate/measuredPerSecond) == 0)
	}
	// The costs do not include the work that is left when the changes end.
	used, err := rig.Used(r.proxy.Process().PID())
	if err != nil {
		return err
	}
	took, peak := time.Since(w.began), r.memory.Take()
	f.underway.Wait()
	if f.failed != nil {
		return f.failed
	}
	r.distribution(step, toAnswer, f.took, f.beyond)
	r.figure(step, "of that, the API server's write, p50", "s", rig.Percentile(f.writes, 50).Seconds())
	r.figure(step, "the client was late by, p99", "s", rig.Percentile(f.late, 99).Seconds())
	r.figure(step, "changes made", "/s", float64(made)/took.Seconds())
	used = used.Minus(w.before)
	r.figure(step, perMinute, "s", used.Sum().Seconds()/took.Minutes())
	r.figure(step, perMinute+", user", "s", used.User.Seconds()/took.Minutes())
	r.figure(step, perMinute+", system", "s", used.System.Seconds()/took.Minutes())
	r.remains(step, peak)
	return nil
}

// changeOne replaces an endpoint: of a Service with one endpoint, followed to its answer, or of
// another. Busy are the Services with one endpoint whose change is not applied yet.
func (r *run) changeOne(ctx context.Context, f *followed, busy *sync.Map, follow bool) {
	// A prime, so that all have their turn.
	const stride = 7919
	r.made++
	it := r.changing[r.made*stride%len(r.changing)]
	if follow {
		r.followed++
		single := r.singles[r.followed*stride%len(r.singles)]
		if _, is := busy.LoadOrStore(single, true); is {
			follow = false
		} else {
			it = single
		}
	}
	r.replace(it)
	all := it.slices()
	if follow {
		f.follow(ctx, r, it.answered(it.endpoints...), func(time.Time) { busy.Delete(it) })
	}
	f.mu.Lock()
	f.writing++
	f.mu.Unlock()
	began := time.Now()
	f.underway.Go(func() {
		var err error
		for _, slice := range all {
			err = errors.Join(err, r.api.update(ctx, slice))
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		f.writing--
		if err != nil {
			f.failed = err
			f.failures++
		}
		f.writes = append(f.writes, time.Since(began))
	})
}

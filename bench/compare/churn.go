package main

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// rates are the changes per second.
var rates = []int{20, 100}

// measuredPerSecond is how many of the changes are followed to the first answer.
const measuredPerSecond = 4

// churn replaces endpoints at given rates.
func (r *run) churn(ctx context.Context) error {
	minutes := r.Minutes / float64(2*len(rates)*r.Rounds)
	for i, rate := range rates {
		if i > 0 {
			if err := r.settle(ctx); err != nil {
				return err
			}
		}
		if err := r.churnAt(ctx, rate, time.Duration(minutes*float64(time.Minute))); err != nil {
			return err
		}
	}
	return nil
}

// followed are the changes whose way to the first answer is measured.
type followed struct {
	mu       sync.Mutex
	busy     map[*item]bool
	took     []time.Duration
	writes   []time.Duration
	beyond   int
	failed   error
	underway sync.WaitGroup
}

func (r *run) churnAt(ctx context.Context, rate int, duration time.Duration) error {
	step := fmt.Sprintf("%d changes/s", rate)
	progress("  %s for %s", step, short(duration))
	r.traffic.during(step)
	r.memory.take()
	before, err := usedBy(r.proxy.process.PID())
	if err != nil {
		return err
	}
	f := &followed{busy: map[*item]bool{}}
	began, ticks := time.Now(), 0
	for ; time.Since(began) < duration; ticks++ {
		// What is late is made up for, so that the rate is kept.
		due := began.Add(time.Duration(ticks) * time.Second / time.Duration(rate))
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Until(due)):
		}
		r.tick(ctx, f, ticks%(rate/measuredPerSecond) == 0)
	}
	after, err := usedBy(r.proxy.process.PID())
	if err != nil {
		return err
	}
	took := time.Since(began)
	peak := r.memory.take()
	r.figure(step, "resident", "MiB", float64(residentKiB(r.proxy.process.PID()))/1024)
	f.underway.Wait()
	if f.failed != nil {
		return f.failed
	}
	r.distribution(step, f.took, f.beyond)
	r.figure(step, "changes made per second", "", float64(ticks)/took.Seconds())
	r.processor(step, after.minus(before), took.Minutes())
	r.figure(step, "resident, peak with children", "MiB", peak)
	r.lost(step)
	return nil
}

// tick makes one change: of a Service with one endpoint, followed to its answer, or of another.
func (r *run) tick(ctx context.Context, f *followed, follow bool) {
	r.change++
	it := r.changing[r.change*7919%len(r.changing)]
	if follow {
		single := r.singles[r.change*7919%len(r.singles)]
		f.mu.Lock()
		if follow = !f.busy[single]; follow {
			it = single
			f.busy[it] = true
		}
		f.mu.Unlock()
	}
	r.replace(it)
	began := time.Now()
	slice := it.slice(0)
	f.underway.Go(func() {
		if err := r.api.update(ctx, slice); err != nil {
			f.mu.Lock()
			f.failed = err
			f.mu.Unlock()
		}
	})
	if !follow {
		return
	}
	want := it.answered(it.endpoints...)
	f.underway.Go(func() {
		limit, cancel := context.WithDeadline(ctx, began.Add(r.Limit))
		defer cancel()
		at, ok := r.network.until(limit, want, began)
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.busy, it)
		if ok {
			f.took = append(f.took, at.Sub(began))
		} else {
			f.beyond++
		}
	})
}

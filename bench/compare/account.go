// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/sluice-proxy/sluice/bench/rig"
)

// window is a step whose costs are counted.
type window struct {
	step   string
	began  time.Time
	before rig.CPU
}

// begin begins to count for a step.
func (r *run) begin(step string) (window, error) {
	rig.Progress("  %s …", step)
	r.traffic.during(step)
	r.memory.Take()
	before, err := rig.Used(r.proxy.Process().PID())
	return window{step, time.Now(), before}, err
}

// finish notes what a step has cost once the program has nothing more to do.
func (r *run) finish(ctx context.Context, w window) error {
	if err := r.idle(ctx); err != nil {
		return err
	}
	used, err := rig.Used(r.proxy.Process().PID())
	if err != nil {
		return err
	}
	used = used.Minus(w.before)
	r.figure(w.step, "CPU time, user", "s", used.User.Seconds())
	r.figure(w.step, "CPU time, system", "s", used.System.Seconds())
	r.remains(w.step, r.memory.Take())
	return nil
}

// remains notes the memory and the traffic of a step.
func (r *run) remains(step string, peakMiB float64) {
	r.figure(step, resident, "MiB", rig.MiB(r.proxy.Process().PID(), rig.Resident))
	r.figure(step, "resident with children, peak", "MiB", peakMiB)
	if r.traffic != nil {
		c := r.traffic.of(step)
		r.figure(step, attempted, "", float64(c.attempted))
		r.figure(step, lost, "", float64(c.lost))
	}
}

// figure notes a value of this run and prints it.
func (r *run) figure(step, what, unit string, number float64) {
	r.note(value{step: step, what: what, unit: unit, number: number})
}

// beyond notes that something did not happen in time.
func (r *run) beyond(step, what string) {
	r.note(value{step: step, what: what, unit: "s", number: r.limit.Seconds(), beyond: true})
}

func (r *run) note(v value) {
	v.program = r.program
	r.out.values = append(r.out.values, v)
	rig.Progress("  %s: %s: %s", v.step, v.what, v)
}

// waited notes how long it took until the last of so many.
func (r *run) waited(step, what string, took []time.Duration, of int) {
	if len(took) < of {
		r.beyond(step, what)
		return
	}
	r.figure(step, what, "s", slices.Max(took).Seconds())
}

// distribution notes how long something took each time. Those beyond were not seen to end.
func (r *run) distribution(step, what string, took []time.Duration, beyond int) {
	for _, percent := range []int{50, 90, 99, 100} {
		which := fmt.Sprintf("%s, p%d", what, percent)
		if seconds, ok := percentile(took, beyond, percent); ok {
			r.figure(step, which, "s", seconds)
		} else {
			r.beyond(step, which)
		}
	}
}

// idle waits until the program uses less than 3% of one CPU.
func (r *run) idle(ctx context.Context) error {
	const window, most = time.Second, 30 * time.Millisecond
	limit := time.Now().Add(r.limit)
	for quiet := 0; quiet < 2; {
		before, err := rig.Used(r.proxy.Process().PID())
		if err != nil {
			return err
		}
		if !rig.Sleep(ctx, window) {
			return ctx.Err()
		}
		after, err := rig.Used(r.proxy.Process().PID())
		if err != nil {
			return err
		}
		if quiet++; after.Minus(before).Sum() > most {
			quiet = 0
		}
		if time.Now().After(limit) {
			rig.Progress("  %s is still busy after %s", r.program, rig.Round(r.limit))
			return nil
		}
	}
	return nil
}

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/sluice-proxy/sluice/bench/result"
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
	before, err := rig.Used(r.proxy.process.PID())
	return window{step, time.Now(), before}, err
}

// finish notes what a step has cost once the program has nothing more to do.
func (r *run) finish(ctx context.Context, w window) error {
	if err := r.idle(ctx); err != nil {
		return err
	}
	used, err := rig.Used(r.proxy.process.PID())
	if err != nil {
		return err
	}
	r.costs(w.step, used.Minus(w.before), r.memory.Take())
	return nil
}

// costs notes what a step has used, and what became of the traffic meanwhile.
func (r *run) costs(step string, used rig.CPU, peakMiB float64) {
	r.figure(step, result.User, "s", used.User.Seconds())
	r.figure(step, result.System, "s", used.System.Seconds())
	r.remains(step, peakMiB)
}

// remains notes the memory and the traffic of a step.
func (r *run) remains(step string, peakMiB float64) {
	r.figure(step, result.Resident, "MiB", rig.MiB(r.proxy.process.PID(), rig.Resident))
	r.figure(step, "resident with children, peak", "MiB", peakMiB)
	if r.traffic == nil {
		return
	}
	c := r.traffic.of(step)
	r.figure(step, result.Attempted, "", float64(c.attempted))
	r.figure(step, result.Lost, "", float64(c.lost))
}

// figure notes a figure of this run and prints it.
func (r *run) figure(step, what, unit string, value float64) {
	r.note(result.Figure{Step: step, What: what, Unit: unit, Value: value})
}

// beyond notes that something did not happen in time.
func (r *run) beyond(step, what string) {
	r.note(result.Figure{Step: step, What: what, Unit: "s", Value: r.Limit.Seconds(), Beyond: true})
}

func (r *run) note(f result.Figure) {
	f.Program, f.Round = r.program, r.round
	r.out.Figures = append(r.out.Figures, f)
	rig.Progress("  %s: %s: %s", f.Step, f.What, f.Text())
}

// waited notes how long it took until the last of so many.
func (r *run) waited(step, what string, took []time.Duration, of int) {
	if len(took) < of {
		r.beyond(step, what)
		return
	}
	last := time.Duration(0)
	for _, t := range took {
		last = max(last, t)
	}
	r.figure(step, what, "s", last.Seconds())
}

// distribution notes how long something took each time.
func (r *run) distribution(step, what string, took []time.Duration, beyond int) {
	d := result.Distribute(took, beyond)
	d.Program, d.Round, d.Step, d.What = r.program, r.round, step, what
	r.out.Distributions = append(r.out.Distributions, d)
	for _, percent := range []int{50, 90, 99, 100} {
		which := fmt.Sprintf("%s, p%d", what, percent)
		if percent == 100 {
			which = what + ", longest"
		}
		if percent < len(d.Percentiles) {
			r.figure(step, which, "s", d.Percentiles[percent]/1000)
		} else {
			r.beyond(step, which)
		}
	}
}

// idle waits until the program has nothing more to do.
func (r *run) idle(ctx context.Context) error {
	return r.idleProcess(ctx, r.program, r.proxy.process.PID(), 0.03)
}

// idleProcess waits until a process uses less than a share of one processor.
func (r *run) idleProcess(ctx context.Context, name string, pid int, share float64) error {
	const window = time.Second
	limit := time.Now().Add(r.Limit)
	for quiet := 0; quiet < 2; {
		before, err := rig.Used(pid)
		if err != nil {
			return err
		}
		if !rig.Sleep(ctx, window) {
			return ctx.Err()
		}
		after, err := rig.Used(pid)
		if err != nil {
			return err
		}
		if quiet++; after.Minus(before).Sum().Seconds() > share*window.Seconds() {
			quiet = 0
		}
		if time.Now().After(limit) {
			rig.Progress("  %s is still busy after %s", name, rig.Round(r.Limit))
			return nil
		}
	}
	return nil
}

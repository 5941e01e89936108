// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/bench/rig"
)

// reaction is how long changes of one kind took, from the watch event to the aggregator's event
// that its batch is in the kernel, and what one of them cost.
type reaction struct {
	Services, Endpoints int
	Kind, Pace          string
	P50, P99, Max       time.Duration
	// Write is the median of what the writes took: encoding and the kernel.
	Write time.Duration
	// Objects, Lines and Bytes are per change, over all domains.
	Objects, Lines, Bytes float64
	Batches               int
	// Own is the CPU time of this process per change, making the API objects included, and Children that of the programs
	// that it starts. Resident is its resident size at the end, in MiB.
	Own, Children time.Duration
	Resident      float64
}

// pace is how changes follow each other: at a fixed rate, or, if the rate is 0, each as soon as the
// one before is in the kernel.
type pace struct {
	name string
	rate float64
}

func perSecond(rate float64) pace { return pace{fmt.Sprintf("%g/s", rate), rate} }

// measureReactions measures every kind of change at every pace.
func measureReactions(ctx context.Context, o options, m measurement, r *result) (err error) {
	if m.size < o.events {
		return fmt.Errorf("%d Services are too few for %d changes of different ones", m.size, o.events)
	}
	subject, err := startFilled(ctx, o, newCluster(m.size, o.endpoints))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, subject.stop()) }()
	return profiled(o, m, func() error {
		for _, p := range []pace{perSecond(o.rate), {name: "back to back"}} {
			for _, k := range kinds {
				found, err := subject.react(ctx, o.events, p, k)
				if err != nil {
					return fmt.Errorf("%s, %s: %w", k.name, p.name, err)
				}
				r.Reactions = append(r.Reactions, found)
			}
			rig.Progress("measured at %s", p.name)
		}
		return nil
	})
}

// measureChurn replaces endpoints at a high rate for a while.
func measureChurn(ctx context.Context, o options, m measurement, r *result) (err error) {
	subject, err := startFilled(ctx, o, newCluster(m.size, o.endpoints))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, subject.stop()) }()
	return profiled(o, m, func() error {
		k := kinds[0]
		k.name += ", sustained"
		found, err := subject.react(ctx, int(o.churn*o.lasting.Seconds()), perSecond(o.churn), k)
		r.Reactions = append(r.Reactions, found)
		return err
	})
}

// react makes changes of one kind and measures their times. It makes the objects of a change before that is due, so that
// after each event the delivering goroutine only waits, as a reflector does.
func (r *subject) react(ctx context.Context, changes int, p pace, k kind) (reaction, error) {
	took := make([]time.Duration, changes)
	began, done := make([]time.Time, changes), make([]<-chan time.Time, changes)
	wait := func(i int) error {
		at, err := r.await(ctx, fmt.Sprintf("change %d", i), done[i])
		took[i], done[i] = at.Sub(began[i]), nil
		return err
	}
	r.take()
	start, own, children := time.Now(), usedNow(), rig.UsedHere(unix.RUSAGE_CHILDREN)
	for i := range changes {
		c := k.change(r.cluster, k.service(r.cluster, i))
		done[i] = r.expect(c)
		if p.rate > 0 {
			time.Sleep(time.Until(start.Add(time.Duration(float64(i) / p.rate * float64(time.Second)))))
		}
		began[i] = time.Now()
		for _, event := range c.events {
			if err := r.deliver(event); err != nil {
				return reaction{}, err
			}
		}
		if p.rate == 0 {
			if err := wait(i); err != nil {
				return reaction{}, err
			}
		}
	}
	for i := range changes {
		if done[i] != nil {
			if err := wait(i); err != nil {
				return reaction{}, err
			}
		}
	}
	work, n := r.take(), time.Duration(changes)
	return reaction{
		Services: r.cluster.services, Endpoints: r.cluster.endpoints, Kind: k.name, Pace: p.name,
		P50: rig.Percentile(took, 50), P99: rig.Percentile(took, 99), Max: rig.Percentile(took, 100),
		Write:   rig.Percentile(work.took, 50),
		Objects: float64(work.written.Objects) / float64(n), Lines: float64(work.written.Lines) / float64(n), Bytes: float64(work.written.Bytes) / float64(n),
		Batches: len(work.took), Own: usedNow().Minus(own).Sum() / n, Children: rig.UsedHere(unix.RUSAGE_CHILDREN).Minus(children).Sum() / n,
		Resident: rig.MiB(os.Getpid(), rig.Resident),
	}, nil
}

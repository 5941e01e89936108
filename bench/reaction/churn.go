package main

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/bench/rig"
)

// churn is what endpoints replaced at a fixed rate cost, and how long each took from the watch event
// to the kernel.
type churn struct {
	// Share is the largest share of the time that writes may take, 0 for no limit.
	Share float64
	reaction
	// Lone is the median of changes while nothing else is going on.
	Lone time.Duration
	// Own and Children are CPU time per minute: of this process, and of the programs that it
	// starts, by user and kernel.
	Own, Children time.Duration
}

// A lone change has nothing else going on around it: no write waits for another.
const (
	lones    = 3
	loneRest = 3 * time.Second
)

// measureChurn replaces endpoints at a rate for a while.
func measureChurn(ctx context.Context, o options, m measurement, r *result) (err error) {
	subject, err := startFilled(ctx, o, newCluster(m.size, o.endpoints))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, subject.stop()) }()
	found := churn{Share: subject.share}
	var alone []time.Duration
	for range lones {
		time.Sleep(loneRest)
		one, err := subject.react(ctx, 1, pace{}, kinds[0])
		if err != nil {
			return err
		}
		alone = append(alone, one.Max)
	}
	found.Lone = rig.Percentile(alone, 50)
	time.Sleep(loneRest)
	return profiled(o, m, func() error {
		start, own, children := time.Now(), usedNow(), rig.UsedHere(unix.RUSAGE_CHILDREN)
		if found.reaction, err = subject.react(ctx, int(o.rate*o.lasting.Seconds()), o.paces()[0], kinds[0]); err != nil {
			return err
		}
		minutes := time.Since(start).Minutes()
		perMinute := func(d time.Duration) time.Duration { return time.Duration(float64(d) / minutes) }
		found.Own, found.Children = perMinute(usedNow().Minus(own).Sum()), perMinute(rig.UsedHere(unix.RUSAGE_CHILDREN).Minus(children).Sum())
		r.Churn = &found
		return nil
	})
}

func churns(results []result) rig.Table {
	t := table("churn, Services; endpoints; pace; share; p50; p99; max; alone; writes; write p50; process, per minute; its children")
	for _, r := range results {
		if c := r.Churn; c != nil {
			row(&t, c.Services, c.Endpoints, c.Pace, c.Share, c.P50, c.P99, c.Max, c.Lone, c.Batches, c.Write, c.Own, c.Children)
		}
	}
	return t
}

package main

import (
	"context"
	"errors"
	"time"
)

// coldStart is what a start has taken. Times count from the start of the process,
// without the making of API objects, which is done on the way.
type coldStart struct {
	Services, Endpoints int
	// Listed is when everything had been reduced and was in the cache, Rendered
	// when every Service had submitted, Programmed when all was in the kernel.
	Listed, Rendered, Programmed time.Duration
	// Answers is when each of firsts served its first client, by its name.
	Answers map[string]time.Duration
	// Writing is how long the first write took, of the family that took longest.
	Writing time.Duration
	// Generating is what was left out.
	Generating time.Duration
	// Processor is the processor time of the process, by user and kernel, with
	// the generating. It says more than the times on a machine that is busy.
	Processor time.Duration
	Memory    memory
}

// measureColdStart starts a proxy in this process, which has done nothing yet.
func measureColdStart(ctx context.Context, o options, m measurement, r *result) (err error) {
	start, err := processStart()
	if err != nil {
		return err
	}
	here, err := answering()
	if err != nil {
		return err
	}
	var rig *rig
	c := &coldStart{Services: m.size, Endpoints: m.endpoints, Answers: map[string]time.Duration{}}
	err = profiled(o, m, func() error {
		if rig, err = startRig(ctx, newCluster(m.size, m.endpoints)); err != nil {
			return err
		}
		if err := rig.list(); err != nil {
			return err
		}
		since := func(at time.Time) time.Duration { return at.Sub(start) - rig.generating }
		c.Listed, c.Generating = since(time.Now()), rig.generating
		for _, f := range firsts {
			at, err := askUntilServed(ctx, here, f)
			if err != nil {
				return err
			}
			c.Answers[f.key.String()] = since(at)
		}
		at, err := rig.await(ctx, "the cold start", rig.complete)
		rig.mu.Lock()
		defer rig.mu.Unlock()
		c.Programmed, c.Rendered, c.Writing, c.Processor = since(at), since(rig.gate), rig.firstWrite, processorTime()
		return err
	})
	if rig != nil {
		defer func() { err = errors.Join(err, rig.stop()) }()
	}
	if err != nil {
		return err
	}
	progress("%d Services of %d endpoints programmed after %v", m.size, m.endpoints, c.Programmed.Round(time.Millisecond))
	c.Memory = takeMemory(m.size)
	r.Cold = c
	return nil
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/sluice-proxy/sluice/bench/rig"
)

// coldStart is what a start took. Times count from the start of the process, without the time to
// generate API objects on the way.
type coldStart struct {
	Services, Endpoints int
	// Listed is when everything had been reduced and was in the cache, Rendered when every Service
	// had submitted, Programmed when all was in the kernel.
	Listed, Rendered, Programmed time.Duration
	// Answers is when each of firsts served its first client, by its name.
	Answers map[string]time.Duration
	// Writing is how long the first write took, of the family that took longest.
	Writing time.Duration
	// Generating is the time left out.
	Generating time.Duration
	// CPU is the process's user and kernel time, including generating. On a busy machine, it says more
	// than the other times.
	CPU time.Duration
	// Objects were written. Reading is how long the first audit took.
	Objects int
	Reading time.Duration
	Memory  memory
}

func (c *coldStart) size() string { return fmt.Sprintf("%d × %d", c.Services, c.Endpoints) }

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
	var subject *subject
	c := &coldStart{Services: m.size, Endpoints: m.endpoints, Answers: map[string]time.Duration{}}
	err = profiled(o, m, func() error {
		if subject, err = startRig(ctx, o, newCluster(m.size, m.endpoints)); err != nil {
			return err
		}
		if err := subject.list(); err != nil {
			return err
		}
		since := func(at time.Time) time.Duration { return at.Sub(start) - subject.generating }
		c.Listed, c.Generating = since(time.Now()), subject.generating
		for _, f := range firsts {
			at, err := askUntilServed(ctx, here, f)
			if err != nil {
				return err
			}
			c.Answers[f.key.String()] = since(at)
		}
		at, err := subject.await(ctx, "the cold start", subject.complete)
		subject.mu.Lock()
		defer subject.mu.Unlock()
		c.Programmed, c.Rendered, c.Writing, c.CPU = since(at), since(subject.gate), subject.firstWrite, usedNow().Sum()
		c.Objects, c.Reading = subject.counts.written.Objects, subject.counts.reading
		return err
	})
	if subject != nil {
		defer func() { err = errors.Join(err, subject.stop()) }()
	}
	if err != nil {
		return err
	}
	rig.Progress("%d Services of %d endpoints programmed after %v", m.size, m.endpoints, c.Programmed.Round(time.Millisecond))
	c.Memory = takeMemory()
	r.Cold = c
	return nil
}

// memory is what a process holds after a cold start, in MiB.
type memory struct {
	// Peak is the largest resident size so far. Resident is the size some seconds after the start,
	// without a forced collection.
	Peak, Resident float64
	// Live is the heap and the stacks in use after a forced collection, in Objects on the heap. Least is the resident size
	// after memory was returned to the system.
	Live, Least float64
	Objects     uint64
}

// settling is how long a process rests before its memory is measured.
const settling = 5 * time.Second

// takeMemory measures the memory of this process.
func takeMemory() memory {
	time.Sleep(settling)
	m := memory{Peak: rig.MiB(os.Getpid(), rig.Peak), Resident: rig.MiB(os.Getpid(), rig.Resident)}
	for range 4 { // stacks shrink by half at each collection
		runtime.GC()
	}
	debug.FreeOSMemory()
	var at runtime.MemStats
	runtime.ReadMemStats(&at)
	m.Live, m.Objects, m.Least = float64(at.HeapAlloc+at.StackInuse)/(1<<20), at.HeapObjects, rig.MiB(os.Getpid(), rig.Resident)
	return m
}

// SPDX-License-Identifier: Apache-2.0

package book

import (
	"math"
	"sync"
	"time"

	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/observe/state"
)

const (
	// stepLength is the length of a step, recentSteps their number: 15 minutes.
	stepLength  = 15 * time.Second
	recentSteps = 60
	// recentRate is the number of steps over which the rate is measured.
	recentRate = 4
	// Buckets grow from recentFirst on, recentOctave of them per doubling, up to 3 minutes.
	recentFirst   = 50 * time.Microsecond
	recentOctave  = 4
	recentBuckets = 22 * recentOctave
)

// recent counts durations by step and bucket. The first duration in a step clears what the same place held
// 15 minutes before.
type recent struct {
	mu    sync.Mutex
	steps [recentSteps]recentStep
}

type recentStep struct {
	number   int64 // of the step since 1970
	total    uint32
	byBucket [recentBuckets]uint32
}

func stepAt(t time.Time) int64 { return t.UnixNano() / int64(stepLength) }

// add counts a duration.
func (r *recent) add(now time.Time, d time.Duration) {
	bucket := int(recentOctave * math.Log2(float64(max(d, recentFirst))/float64(recentFirst)))
	number := stepAt(now)
	r.mu.Lock()
	defer r.mu.Unlock()
	s := &r.steps[number%recentSteps]
	if s.number != number {
		*s = recentStep{number: number}
	}
	s.total++
	s.byBucket[min(bucket, recentBuckets-1)]++
}

// read returns the last 15 minutes.
func (r *recent) read(now time.Time) state.Recent {
	made := state.Recent{StepSeconds: int(stepLength.Seconds()), Counts: make([]int, recentSteps)}
	var sum [recentBuckets]uint32
	var total uint32
	newest := stepAt(now)
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.steps {
		s := &r.steps[i]
		age := newest - s.number
		if age < 0 || age >= recentSteps {
			continue
		}
		made.Counts[recentSteps-1-age] = int(s.total)
		total += s.total
		for bucket, n := range s.byBucket {
			sum[bucket] += n
		}
	}
	span := recentRate*stepLength + time.Duration(now.UnixNano()%int64(stepLength))
	for _, n := range made.Counts[recentSteps-1-recentRate:] {
		made.PerSecond += float64(n) / span.Seconds()
	}
	made.P50Micros, made.P99Micros = quantile(&sum, total, 0.5).Microseconds(), quantile(&sum, total, 0.99).Microseconds()
	return made
}

// quantile returns the middle of the bucket in which the given share of all durations is reached.
func quantile(sum *[recentBuckets]uint32, total uint32, share float64) time.Duration {
	if total == 0 {
		return 0
	}
	rank, bucket := uint32(math.Ceil(share*float64(total))), 0
	for seen := sum[0]; seen < rank; seen += sum[bucket] {
		bucket++
	}
	return time.Duration(float64(recentFirst) * math.Exp2((float64(bucket)+0.5)/recentOctave))
}

// countRecent counts a change of a Service for Activity. Changes at the start of an actor wait for the whole startup,
// so they do not count.
func (b *Book) countRecent(e *aggregator.Applied, triggered, received time.Duration) {
	if received < 0 || e.Trace.Causes&dataplane.CauseStart != 0 {
		return
	}
	b.changes.add(e.At, received)
	if triggered >= received {
		b.lag.add(e.At, triggered-received)
	}
}

// Activity returns what the proxy did in the last 15 minutes.
func (b *Book) Activity() state.Activity {
	now := time.Now()
	return state.Activity{Changes: b.changes.read(now), Lag: b.lag.read(now), LastRepair: b.repaired.Load()}
}

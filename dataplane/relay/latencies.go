// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"sort"
	"sync/atomic"
	"time"
)

// LatencyBounds are the upper bounds of the buckets of Latencies, in seconds: from 50 µs to 52 s.
var LatencyBounds = func() (bounds [21]float64) {
	for i := range bounds {
		bounds[i] = 50e-6 * float64(int(1)<<i)
	}
	return bounds
}()

// Latencies is a histogram. Any goroutine may use it; the zero value is ready.
type Latencies struct {
	// counts has one element per bucket. The last counts durations above all bounds.
	counts [len(LatencyBounds) + 1]atomic.Uint64
	nanos  atomic.Int64
}

func (l *Latencies) observe(d time.Duration) {
	l.counts[sort.SearchFloat64s(LatencyBounds[:], d.Seconds())].Add(1)
	l.nanos.Add(int64(d))
}

// AddTo adds the histogram to counts and sum. The last element of counts is for durations above all bounds.
func (l *Latencies) AddTo(counts *[len(LatencyBounds) + 1]uint64, sum *time.Duration) {
	for i := range l.counts {
		counts[i] += l.counts[i].Load()
	}
	*sum += time.Duration(l.nanos.Load())
}

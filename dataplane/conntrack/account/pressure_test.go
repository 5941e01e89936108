// SPDX-License-Identifier: Apache-2.0

package account

import (
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/dataplane/conntrack"
	"github.com/sluice-proxy/sluice/dataplane/traffic"
)

// TestPressure_Hysteresis: a level of pressure ends 5 % below where it begins, and drops are remembered for five
// minutes.
func TestPressure_Hysteresis(t *testing.T) {
	began := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	p := Pressure{}
	var since time.Time
	for i, step := range []struct {
		after   time.Duration
		entries uint64
		dropped uint64
		want    Level
		changed bool
	}{
		{0, 100, 7, Calm, false}, // drops from before do not count
		{2, 3999, 7, Calm, false}, {4, 4000, 7, Filling, true}, {6, 3750, 7, Filling, false}, {8, 3749, 7, Calm, true},
		{10, 4749, 7, Filling, true}, {12, 4750, 7, Full, true}, {14, 4500, 7, Full, false}, {16, 4499, 7, Filling, true},
		{18, 4000, 8, Dropping, true}, {20, 4800, 9, Full, true}, {22, 3700, 9, Dropping, true},
		{319, 100, 9, Dropping, false}, {320, 100, 9, Calm, true},
		{322, 100, 3, Calm, false}, // a number of a CPU wrapped
		{324, 100, 4, Dropping, true},
	} {
		now := began.Add(step.after * time.Second)
		if step.changed {
			since = now
		}
		p.Holders = &traffic.Flows{}
		p = p.next(now, conntrack.Usage{Entries: step.entries, Limit: 5000, Dropped: step.dropped})
		if p.Level != step.want || !p.Since.Equal(since) || p.At != now || (p.Holders == nil) != (p.Level == Calm) {
			t.Fatalf("step %d: %+v, want level %d since %v", i, p, step.want, since)
		}
	}
	p = Pressure{}
	if p = p.next(began, conntrack.Usage{Entries: 1 << 30}); p.Level != Calm || p.Percent() != 0 {
		t.Errorf("without a limit: %+v", p)
	}
	if p = p.next(began, conntrack.Usage{EarlyDropped: 3, Dropped: 1}); p.Level != Dropping || p.Drops != 4 {
		t.Errorf("connections dropped early: %+v", p)
	}
}

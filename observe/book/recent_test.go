// SPDX-License-Identifier: Apache-2.0

package book

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/ledger"
)

// TestRecent_QuantilesAndRate: the quantiles and the rate of recent changes are right.
func TestRecent_QuantilesAndRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(7 * time.Second) // within a step
		var r recent
		if empty := r.read(time.Now()); empty.P50Micros != 0 || empty.PerSecond != 0 || len(empty.Counts) != recentSteps {
			t.Errorf("%+v", empty)
		}
		for range 980 {
			r.add(time.Now(), 400*time.Microsecond)
		}
		for range 20 {
			r.add(time.Now(), 30*time.Millisecond)
		}
		r.add(time.Now(), time.Hour) // beyond the last bucket
		near := func(got int64, want time.Duration) bool {
			return got > want.Microseconds()*9/10 && got < want.Microseconds()*11/10
		}
		got := r.read(time.Now())
		if !near(got.P50Micros, 400*time.Microsecond) || !near(got.P99Micros, 30*time.Millisecond) || got.Counts[recentSteps-1] != 1001 {
			t.Errorf("%+v", got)
		}
		if want := 1001 / (time.Minute + 7*time.Second).Seconds(); got.PerSecond < want*0.999 || got.PerSecond > want*1.001 {
			t.Errorf("%v per second, want %v", got.PerSecond, want)
		}
		time.Sleep(5 * stepLength)
		if got := r.read(time.Now()); got.PerSecond != 0 || got.Counts[recentSteps-6] != 1001 {
			t.Errorf("after five steps: %+v", got)
		}
		time.Sleep((recentSteps - 5) * stepLength)
		if got := r.read(time.Now()); got.P50Micros != 0 {
			t.Errorf("after 15 minutes: %+v", got)
		}
		r.add(time.Now(), time.Millisecond) // the place of the old step
		if got := r.read(time.Now()); got.Counts[recentSteps-1] != 1 || !near(got.P99Micros, time.Millisecond) {
			t.Errorf("an old step counts: %+v", got)
		}
	})
}

func TestBook_LastRepair(t *testing.T) {
	b := newBook(1)
	if r := b.Activity().LastRepair; r != nil {
		t.Errorf("%+v", r)
	}
	b.Aggregator(aggregator.RepairBegan{Domain: domain4, Undone: ledger.Undone{Missing: 2, Unwanted: 1, Services: 1},
		Examples: []string{"missing: x"}, By: dataplane.ForeignProcess{PID: 7, Command: "nft"}})
	if r := b.Activity().LastRepair; r == nil || r.By != "nft (process 7)" || r.Objects != 3 || r.Services != 1 || time.Since(r.At) > time.Minute {
		t.Errorf("%+v", r)
	}
}

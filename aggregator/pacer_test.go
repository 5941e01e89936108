// SPDX-License-Identifier: Apache-2.0

package aggregator

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func at(ms int) time.Time { return epoch.Add(time.Duration(ms) * time.Millisecond) }

const ms = time.Millisecond

// audited returns a pacer whose next audit is far away.
func audited(pace Pace) *Pacer {
	pace.Audit = time.Hour
	p := NewPacer(pace)
	p.Audited(epoch, 0, true)
	return p
}

func expect(t *testing.T, p *Pacer, now time.Time, action Action, until time.Time) {
	t.Helper()
	got, when := p.Next(now)
	if got != action || !when.Equal(until) {
		t.Fatalf("at +%v: action %d until +%v, want %d until +%v", now.Sub(epoch), got, when.Sub(epoch), action, until.Sub(epoch))
	}
}

// churn writes as early as the pacer allows while something always waits, and returns the
// share of the time that writing took, after the first writes.
func churn(p *Pacer, now time.Time, took, lasts time.Duration) (share float64, end time.Time) {
	const settling = 20 * time.Second
	start, writing := now.Add(settling), time.Duration(0)
	for {
		p.Waiting(now)
		action, until := p.Next(now)
		if action != Write {
			now = until
			continue
		}
		p.Taken()
		now = now.Add(took)
		p.Wrote(now, took, true, 0)
		if now.After(start) {
			writing += took
		}
		if passed := now.Sub(start); passed > lasts {
			return float64(writing) / float64(passed), now
		}
	}
}

// TestPacer_SustainedWritesTakeShare: under constant load, writes take the configured share of the time.
func TestPacer_SustainedWritesTakeShare(t *testing.T) {
	for _, share := range []float64{0.1, 0.25, 0.5, 1} {
		for _, took := range []time.Duration{ms, 40 * ms, 400 * ms} {
			p := audited(Pace{MaxWriteShare: share, MaxDelay: time.Hour})
			if got, _ := churn(p, at(0), took, 100*time.Second); math.Abs(got-share) > 0.05*share {
				t.Errorf("share %v, writes of %v: took %.3f of the time", share, took, got)
			}
		}
	}
}

// started returns a pacer after the first write, which took long and does not count.
func started(pace Pace) *Pacer {
	p := audited(pace)
	p.Wrote(at(0), time.Minute, true, 0)
	return p
}

// TestPacer_BurstGoesAheadOfShare: after a rest, the pacer writes changes immediately until writing is half a second
// ahead of its share.
func TestPacer_BurstGoesAheadOfShare(t *testing.T) {
	p, now, writes := started(Pace{MaxWriteShare: 0.25}), at(0), 0
	for ; writes < 100; writes++ {
		p.Waiting(now)
		if action, _ := p.Next(now); action != Write {
			break
		}
		p.Taken()
		now = now.Add(100 * ms)
		p.Wrote(now, 100*ms, true, 0)
	}
	if writes != 7 { // 0.7 s, of which 0.175 s are the share
		t.Errorf("%d writes of 100 ms at once, want 7", writes)
	}
}

// TestPacer_LongAgoWritesForgiven: a change that comes one maximum delay after a long first write, or after writes
// forced by the maximum delay, is written immediately.
func TestPacer_LongAgoWritesForgiven(t *testing.T) {
	long := started(Pace{MaxWriteShare: 0.1, MaxDelay: 500 * ms})
	long.Wrote(at(10_000), 10*time.Second, true, 0)
	brought := audited(Pace{MaxWriteShare: 0.1, MaxDelay: 500 * ms})
	share, end := churn(brought, at(0), 500*ms, 10*time.Minute)
	if share < 0.45 {
		t.Fatalf("took %.2f of the time, want half: the deadline passes during a write", share)
	}
	for p, end := range map[*Pacer]time.Time{long: at(10_000), brought: end} {
		rested := end.Add(500 * ms)
		p.Waiting(rested)
		expect(t, p, rested, Write, rested)
	}
}

// TestPacer_BoundsQuick: for random changes and write times, writes keep the minimum interval, and no fragment waits
// longer than the maximum delay unless a write is in progress.
func TestPacer_BoundsQuick(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 1))
		pace := Pace{MinInterval: time.Duration(random.IntN(50)) * ms, MaxDelay: time.Duration(20+random.IntN(200)) * ms}
		p := audited(pace)
		var lastEnd, oldest time.Time
		busyUntil := epoch
		for tick := range 3000 {
			now := at(tick)
			if random.IntN(20) == 0 {
				p.Waiting(now)
				if oldest.IsZero() {
					oldest = now
				}
			}
			if now.Before(busyUntil) {
				continue
			}
			action, _ := p.Next(now)
			age := now.Sub(oldest)
			if action == Write {
				if !lastEnd.IsZero() && now.Sub(lastEnd) < pace.MinInterval && age < pace.MaxDelay {
					t.Fatalf("seed %d: wrote %v after the last write, spacing %v", seed, now.Sub(lastEnd), pace.MinInterval)
				}
				took := time.Duration(random.IntN(30)) * ms
				busyUntil = now.Add(took)
				p.Taken()
				p.Wrote(busyUntil, took, true, 0)
				lastEnd, oldest = busyUntil, time.Time{}
			} else if !oldest.IsZero() && age > pace.MaxDelay {
				t.Fatalf("seed %d: a fragment waits for %v, deadline %v", seed, age, pace.MaxDelay)
			}
		}
	}
}

// TestPaceValidate_BadNumbers: Validate rejects a pace with a negative, too large or contradictory number.
func TestPaceValidate_BadNumbers(t *testing.T) {
	for _, bad := range []Pace{{MinInterval: -1}, {MaxWriteShare: 1.5}, {BackoffMin: time.Minute, BackoffMax: time.Second}} {
		if bad.Validate() == nil {
			t.Errorf("accepted %+v", bad)
		}
	}
}

// TestPacer_HeldLockRetriedSoon: a write that waits for a lock of another process is retried after a short pause,
// however often it failed. After other failures the pause grows.
func TestPacer_HeldLockRetriedSoon(t *testing.T) {
	for _, busy := range []bool{true, false} {
		p, now := started(Pace{}), at(0)
		for range 20 {
			now = now.Add(5 * time.Second) // what the program waits for the lock
			p.Wrote(now, 5*time.Second, false, 0.5)
			if busy {
				p.Busy()
			}
		}
		if _, next := p.Next(now); next.Sub(now) > busyMax == busy {
			t.Errorf("after 20 writes, busy %t: the next one after %v", busy, next.Sub(now))
		}
	}
}

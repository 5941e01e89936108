// SPDX-License-Identifier: Apache-2.0

package cleaner

import (
	"testing"
	"time"
)

func TestPace(t *testing.T) {
	start := time.Unix(1000, 0)
	ms := func(n int) time.Time { return start.Add(time.Duration(n) * time.Millisecond) }
	p := pace{gather: 20 * time.Millisecond}
	expect := func(when string, want time.Time) {
		t.Helper()
		if at := p.next(); !at.Equal(want) {
			t.Errorf("%s: at %v, want %v", when, at.Sub(start), want.Sub(start))
		}
	}
	expect("nothing waits", time.Time{})
	p.waiting(ms(0))
	p.waiting(ms(15))
	expect("gathering counts from the oldest", ms(20))
	p.swept(ms(50), 30*time.Millisecond)
	expect("done", time.Time{})
	p.waiting(ms(60))
	expect("a sweep of 30 ms is followed by a rest of 90 ms", ms(140))
	hurried := p
	hurried.hurry()
	if at := hurried.next(); !at.Equal(ms(80)) {
		t.Errorf("after a repair: at %v, want no rest", at.Sub(start))
	}
	p.swept(ms(141), time.Millisecond)
	p.waiting(ms(200))
	expect("after a short one, gathering counts", ms(220))
}

// TestPace_BacksOff: pauses double with each failure up to a limit, grow with the length of a sweep, and start over
// after a success.
func TestPace_BacksOff(t *testing.T) {
	end := time.Unix(1000, 0)
	p := pace{}
	p.waiting(end)
	pause := func(jitter float64, took time.Duration) time.Duration {
		p.failed(end, took, jitter)
		at := p.next()
		if at.IsZero() {
			t.Fatal("what failed does not wait any more")
		}
		return at.Sub(end)
	}
	for i, want := range []time.Duration{100, 200, 400, 800, 1600, 3200, 6400, 10000, 10000} {
		if got := pause(0, time.Millisecond); got != want*time.Millisecond {
			t.Errorf("failure %d: a pause of %v, want %v", i+1, got, want*time.Millisecond)
		}
	}
	if got := pause(0.5, 0); got != 12500*time.Millisecond {
		t.Errorf("jitter makes it %v", got)
	}
	p.swept(end, 0)
	p.waiting(end)
	if got := pause(0, time.Second); got != 3*time.Second {
		t.Errorf("after a long sweep that failed: %v", got)
	}
	if p.hurry(); p.notBefore.IsZero() {
		t.Error("a repair ended the backoff")
	}
	if p.failures != 1 {
		t.Errorf("%d failures since the last success, want 1", p.failures)
	}
	for range 100 {
		if got := pause(0, 0); got > backoffMax || got <= 0 {
			t.Fatalf("after %d failures: %v", p.failures, got)
		}
	}
}

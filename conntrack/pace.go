package conntrack

import "time"

// pace decides when to sweep. It is pure: its owner tells it what happened and
// what time it is.
//
// Goals: (1) what belongs together shares one sweep; (2) sweeping takes a bounded
// share of the time, however many flows there are; (3) failures do not spin.
// Gathering serves 1, the pause after a sweep 2, the backoff 3.
type pace struct {
	// gather is how long a change waits for others.
	gather time.Duration
	// waitingSince is the arrival of the oldest change; zero: none waits.
	waitingSince time.Time
	// notBefore is when the next sweep may start.
	notBefore time.Time
	// failures counts the sweeps that have failed since the last that did not.
	failures int
}

const (
	// restShare makes sweeps take at most a quarter of the time.
	restShare = 3
	// backoffMin and backoffMax bound the pause after failed sweeps, which
	// doubles with each.
	backoffMin = 100 * time.Millisecond
	backoffMax = 10 * time.Second
)

// waiting says that something has to be cleaned.
func (p *pace) waiting(now time.Time) {
	if p.waitingSince.IsZero() {
		p.waitingSince = now
	}
}

// swept says that everything which waited has been cleaned.
func (p *pace) swept(end time.Time, took time.Duration) {
	p.waitingSince, p.failures = time.Time{}, 0
	p.notBefore = end.Add(restShare * took)
}

// failed says that a sweep has left something. Jitter in [0, 1) keeps the two
// families, and the nodes of a cluster, apart.
func (p *pace) failed(end time.Time, took time.Duration, jitter float64) {
	pause := min(backoffMin<<min(p.failures, 20), backoffMax)
	p.failures++
	p.notBefore = end.Add(max(pause+time.Duration(jitter*float64(pause)/2), restShare*took))
}

// next says when to sweep; false while nothing waits.
func (p *pace) next() (at time.Time, due bool) {
	if p.waitingSince.IsZero() {
		return time.Time{}, false
	}
	at = p.waitingSince.Add(p.gather)
	if p.notBefore.After(at) {
		at = p.notBefore
	}
	return at, true
}

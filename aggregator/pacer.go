// SPDX-License-Identifier: Apache-2.0

package aggregator

import (
	"fmt"
	"time"

	"github.com/sluice-proxy/sluice/internal/sleep"
)

// Pace holds the pacer's numbers. Zero fields take their defaults.
type Pace struct {
	// MinInterval is the shortest pause from the end of one write to the start of
	// the next. Default 0: a batch starts when the last one ended, and gathers
	// while one is in flight (group commit).
	MinInterval time.Duration
	// MaxWriteShare bounds sustained work: writing takes at most this share of the time,
	// except that shareAhead may go ahead of it. 0 switches it off; otherwise
	// 0 < MaxWriteShare ≤ 1.
	MaxWriteShare float64
	// MaxDelay is the longest time from the oldest waiting fragment to the start of
	// its write. It overrides MinInterval and MaxWriteShare, but neither a write in progress nor a
	// backoff. Default 1 s.
	MaxDelay time.Duration
	// Audit is the pause from the end of one audit to the start of the next.
	// Default 30 s. It stretches up to twentyfold, so that audits take at most 2 % of
	// the time.
	Audit time.Duration
	// BackoffMin and BackoffMax bound the pause after failed writes, which
	// doubles with each failure. Defaults 100 ms and 30 s. After a write that met a lock
	// or a full buffer it is at most a second.
	BackoffMin, BackoffMax time.Duration
}

// auditShare is the largest share of time that audits may take, unless that would
// stretch the pause between them more than auditStretch times: damage is repaired even
// where reading is slow.
const (
	auditShare   = 0.02
	auditStretch = 20
)

// shareAhead is how much writing may go ahead of the share: after a rest, a few changes in
// a row are each written immediately.
const shareAhead = time.Second / 2

func (p Pace) withDefaults() Pace {
	defaulted(&p.MaxDelay, time.Second)
	defaulted(&p.Audit, 30*time.Second)
	defaulted(&p.BackoffMin, 100*time.Millisecond)
	defaulted(&p.BackoffMax, 30*time.Second)
	return p
}

func defaulted(field *time.Duration, value time.Duration) {
	if *field == 0 {
		*field = value
	}
}

// Validate reports the first number that makes no sense.
func (p Pace) Validate() error {
	p = p.withDefaults()
	switch {
	case p.MinInterval < 0 || p.MaxDelay < 0 || p.Audit < 0:
		return fmt.Errorf("pace: spacing %v, deadline %v, audit %v: must not be negative",
			p.MinInterval, p.MaxDelay, p.Audit)
	case p.MaxWriteShare < 0 || p.MaxWriteShare > 1:
		return fmt.Errorf("pace: write share %v: must be 0 (off) to 1", p.MaxWriteShare)
	case p.BackoffMin < 0 || p.BackoffMax < p.BackoffMin:
		return fmt.Errorf("pace: backoff from %v to %v: must be 0 ≤ minimum ≤ maximum",
			p.BackoffMin, p.BackoffMax)
	}
	return nil
}

// Pacer decides when to write. It is pure: its owner passes events and the time.
//
// Goals: (1) a single change in quiet times is written immediately; (2) under load
// writes take a bounded share of the time; (3) no fragment waits past the
// deadline; (4) failures do not spin; (5) audits run, and do not starve writes.
// MinInterval serves 2, the deadline 3, the backoff 4; having no timer before the
// first write serves 1.
type Pacer struct {
	pace Pace
	// waitingSince is the arrival of the oldest waiting fragment; zero: none.
	waitingSince time.Time
	// lastEnd is the end of the last write.
	lastEnd time.Time
	// sharedAt is when the writes so far, without the first, will have taken just their
	// share of the time.
	sharedAt time.Time
	// failures counts the failed writes since the last success; retryAt is when the
	// next write may start.
	failures int
	retryAt  time.Time
	// auditDue is when the next audit may start. auditAgain is set if one was requested
	// after the last one began, which may have missed the reason.
	auditDue   time.Time
	auditAgain bool
	// restUntil is the earliest start of a requested audit.
	restUntil time.Time
}

// NewPacer makes a pacer whose first audit is due immediately.
func NewPacer(pace Pace) *Pacer { return &Pacer{pace: pace.withDefaults()} }

// Waiting notes that something has been waiting since the given time.
func (p *Pacer) Waiting(since time.Time) {
	if p.waitingSince.IsZero() || since.Before(p.waitingSince) {
		p.waitingSince = since
	}
}

// Taken notes that nothing waits any more.
func (p *Pacer) Taken() { p.waitingSince = time.Time{} }

// Wrote notes the end of a write, its duration, and whether it landed. Jitter in [0, 1)
// spreads the retries of many nodes.
func (p *Pacer) Wrote(end time.Time, took time.Duration, landed bool, jitter float64) {
	p.Ended(end, took)
	if landed {
		p.Recovered()
		return
	}
	p.failures++
	pause := sleep.Backoff(float64(p.failures), p.pace.BackoffMin, p.pace.BackoffMax)
	p.retryAt = end.Add(pause + time.Duration(jitter*float64(pause)/2))
	p.Waiting(end) // what failed waits again
}

// busyMax bounds the pause after a write that met a lock or a full buffer. The write has waited
// for them itself, and after that a longer pause only delays what can land.
const busyMax = time.Second

// quickRetries is how many tries of a bisection may fail in a row before the pause doubles: as
// many as it takes to find one Service among some hundreds.
const quickRetries = 8

// Retry returns the pause after so many tries of a bisection, or audits, that failed in a row.
func (p *Pacer) Retry(failed int) time.Duration {
	return max(p.pace.BackoffMin, sleep.Backoff(float64(failed-quickRetries+1), p.pace.BackoffMin, busyMax))
}

// Busy notes, after Wrote, that only a lock or a full buffer was in the way, or something that may be gone now.
func (p *Pacer) Busy() {
	if latest := p.lastEnd.Add(busyMax); p.retryAt.After(latest) {
		p.retryAt = latest
	}
}

// Ended notes the end of a write whose outcome does not count: spacing starts, and an
// earlier failure still has to be retried.
func (p *Pacer) Ended(end time.Time, took time.Duration) {
	first := p.lastEnd.IsZero()
	p.lastEnd = end
	if first || p.pace.MaxWriteShare == 0 {
		return // the first write is the start's
	}
	p.sharedAt = laterOf(p.sharedAt, end.Add(-took)).Add(p.shared(took))
	// Writes that the deadline brought forward, or one long write, need not be made up for in full: a change that
	// arrives MaxDelay after the last write never waits.
	if most := end.Add(p.pace.MaxDelay + p.shared(shareAhead)); most.Before(p.sharedAt) {
		p.sharedAt = most
	}
}

// shared returns the time in which so much writing is allowed.
func (p *Pacer) shared(writing time.Duration) time.Duration {
	return time.Duration(float64(writing) / p.pace.MaxWriteShare)
}

// Recovered notes that nothing is left to retry: what failed is in the kernel after
// all, or no longer wanted.
func (p *Pacer) Recovered() { p.failures, p.retryAt = 0, time.Time{} }

// Auditing notes that an audit begins.
func (p *Pacer) Auditing() { p.auditAgain = false }

// Audited notes the end of an audit, its duration, and whether it succeeded. If another
// one was requested since this one began, it follows as early as possible.
func (p *Pacer) Audited(end time.Time, took time.Duration, done bool) {
	pause := p.pace.Audit
	if done {
		pause = max(pause, min(time.Duration(float64(took)/auditShare), auditStretch*pause))
	}
	p.auditDue = end.Add(pause)
	if p.auditAgain {
		p.auditDue = end
	}
}

// AuditSoon requests an audit as early as possible.
func (p *Pacer) AuditSoon(now time.Time) {
	p.auditAgain = true
	p.AuditBy(laterOf(now, p.restUntil))
}

// AuditBy requests an audit no later than the given time.
func (p *Pacer) AuditBy(at time.Time) {
	if p.auditDue.After(at) {
		p.auditDue = at
	}
}

// Rest postpones audits to the given time, because the last one found nothing.
func (p *Pacer) Rest(until time.Time) {
	p.restUntil = until
	p.auditDue = laterOf(p.auditDue, until)
}

func laterOf(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// AuditFirst requests an audit before the next write.
func (p *Pacer) AuditFirst(now time.Time) { p.auditDue = now.Add(-p.pace.Audit) }

// Failures returns the number of failed writes since the last one that landed.
func (p *Pacer) Failures() int { return p.failures }

// Action is what to do now.
type Action uint8

// The actions.
const (
	// Sleep: look again at the given time, or when something happens.
	Sleep Action = iota
	// Write: take what is waiting and write it.
	Write
	// Audit: read the kernel back, then write what differs.
	Audit
)

// Next returns what to do now, and for Sleep until when. It must be called only while
// no write is in flight. Writes go first, except before an audit that is overdue by a
// whole interval, or, if it was requested, by the deadline of a fragment: constant writes must not
// delay the repair of what another program removed.
func (p *Pacer) Next(now time.Time) (Action, time.Time) {
	if now.Before(p.retryAt) {
		return Sleep, p.retryAt
	}
	writeAt, waiting := p.writeAt()
	patience := p.pace.Audit
	if p.auditAgain {
		patience = min(patience, p.pace.MaxDelay)
	}
	switch {
	case !now.Before(p.auditDue.Add(patience)):
		return Audit, now
	case waiting && !now.Before(writeAt):
		return Write, now
	case !now.Before(p.auditDue):
		return Audit, now
	case waiting && writeAt.Before(p.auditDue):
		return Sleep, writeAt
	default:
		return Sleep, p.auditDue
	}
}

// writeAt returns when the waiting fragments should be written.
func (p *Pacer) writeAt() (time.Time, bool) {
	if p.waitingSince.IsZero() {
		return time.Time{}, false
	}
	at := p.waitingSince
	if !p.lastEnd.IsZero() {
		at = laterOf(at, p.lastEnd.Add(p.pace.MinInterval))
		if p.pace.MaxWriteShare > 0 {
			at = laterOf(at, p.sharedAt.Add(-p.shared(shareAhead)))
		}
	}
	if deadline := p.waitingSince.Add(p.pace.MaxDelay); deadline.Before(at) {
		at = deadline
	}
	return at, true
}

// Pause returns the spacing after a write that took so long, if writes go on.
func (p *Pacer) Pause(took time.Duration) time.Duration {
	if p.pace.MaxWriteShare == 0 {
		return p.pace.MinInterval
	}
	return max(p.pace.MinInterval, p.shared(took)-took)
}

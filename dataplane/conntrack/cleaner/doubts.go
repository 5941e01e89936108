// SPDX-License-Identifier: Apache-2.0

package cleaner

import "time"

// doubts decides when to judge the flows of all frontends again after a repair. It is pure: its owner passes in events
// and the time.
//
// One sweep is not enough. A packet that met no rule enters the connection table only when it leaves the host. Before,
// no sweep can see it: another program may hold it in a queue (NFQUEUE), and a loaded machine may suspend the processor
// that handles it. The flow that it begins is not translated, although the rules are complete at this time.
type doubts struct {
	// at is the time of the next sweep; zero means never.
	at time.Time
	// times counts the sweeps since the repair, except the first one.
	times int
}

// doubtPauses are the pauses before the sweeps after the first one, which follow 50, 200 and 400 ms and 1 s after the
// repair. All of them take place, because a sweep without stale flows proves nothing about packets on their way.
var doubtPauses = [...]time.Duration{
	50 * time.Millisecond, 150 * time.Millisecond, 200 * time.Millisecond, 600 * time.Millisecond,
}

const (
	// doubtPause is the pause before another sweep if the last one found stale flows.
	doubtPause = time.Second
	// doubtsMax is the maximum number of sweeps, because a program may keep its own flows untranslated.
	doubtsMax = 10
)

// repaired records a repair.
func (d *doubts) repaired(now time.Time) { *d = doubts{at: now.Add(doubtPauses[0])} }

// due reports whether it is time to judge all flows.
func (d *doubts) due(now time.Time) bool {
	if d.at.IsZero() || now.Before(d.at) {
		return false
	}
	d.at = time.Time{}
	if d.times++; d.times < len(doubtPauses) {
		d.at = now.Add(doubtPauses[d.times])
	}
	return true
}

// swept records the number of stale flows in a complete sweep.
func (d *doubts) swept(end time.Time, deleted int) {
	switch {
	case d.times < len(doubtPauses):
	case deleted > 0 && d.times < doubtsMax:
		d.at = end.Add(doubtPause)
	default:
		*d = doubts{}
	}
}

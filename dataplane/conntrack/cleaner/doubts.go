// SPDX-License-Identifier: Apache-2.0

package cleaner

import "time"

// doubts decides when to judge the flows of all frontends again after a repair. It is pure: its owner
// passes in what happened and the time.
//
// One sweep is not enough. A packet that met no rule enters the kernel's table of flows only when it
// leaves the host. Until then, no sweep can see it: another program may hold it in a queue (NFQUEUE),
// and a loaded machine may suspend the processor that handles it. The flow that it begins is not
// translated, although the rules are complete by then.
type doubts struct {
	// at is when the next sweep is due; zero for never.
	at time.Time
	// times counts the sweeps since the repair, without the first one.
	times int
}

// doubtPauses are the pauses before the sweeps after the first one: 50, 200, 400 ms and 1 s after the
// repair. All of them happen, since a sweep that finds nothing says nothing about packets on their way.
var doubtPauses = [...]time.Duration{
	50 * time.Millisecond, 150 * time.Millisecond, 200 * time.Millisecond, 600 * time.Millisecond,
}

const (
	// doubtPause is the pause before another sweep if the last one still found stale flows.
	doubtPause = time.Second
	// doubtsMax bounds the sweeps: a program may keep its own flows untranslated.
	doubtsMax = 10
)

// repaired starts over.
func (d *doubts) repaired(now time.Time) { *d = doubts{at: now.Add(doubtPauses[0])} }

// due reports whether all flows are to be judged now.
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

// swept takes how many stale flows a complete sweep found.
func (d *doubts) swept(end time.Time, deleted int) {
	switch {
	case d.times < len(doubtPauses):
	case deleted > 0 && d.times < doubtsMax:
		d.at = end.Add(doubtPause)
	default:
		*d = doubts{}
	}
}

// SPDX-License-Identifier: Apache-2.0

package aggregator

import (
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
)

// act starts the job that is due. It must be called only while no job is in flight. It returns when to call it again;
// zero means after the next event.
func (m *machine) act(now time.Time) time.Time {
	if open, again := m.openGate(now); !open {
		m.readAhead(now)
		return again
	}
	soon := sooner(m.announce(now), m.awaitPostponed(now))
	action, again := m.pacer.Next(now)
	again = sooner(again, soon)
	switch {
	case action == Audit, action == Write && !m.start.adopted:
		m.pacer.Auditing()
		m.repairs.auditing()
		m.begin(now, job{purpose: audit})
		return time.Time{}
	case action == Write && !m.triesFirst(now):
		m.foldAndWrite(now)
		return now
	case m.pacer.Failures() > 0:
		return again // after what has failed has been written
	}
	return m.bisect(now, sooner(again, m.addDue(now)))
}

// bisect continues the search. It returns when to call act again, no later than the given time.
func (m *machine) bisect(now, again time.Time) time.Time {
	switch {
	case m.tries.proving:
		if m.write(now, ordinary) {
			return time.Time{}
		}
		return now
	case m.tries.bisection.idle() && !m.tries.recheck:
		if m.restored() { // since the bisection ended
			m.repairDone(now)
		}
	case m.tries.bisection.trying():
		// The next cut ends the try, after a read.
	case now.Before(m.tries.next):
		again = sooner(again, m.tries.next)
	case m.tryNext(now):
		return time.Time{}
	default:
		return now // the bisection is over
	}
	return again
}

// openGate reports whether the gate is open, and otherwise when to ask again. It emits GateOpened when the gate opens.
func (m *machine) openGate(now time.Time) (open bool, again time.Time) {
	before := m.gate.opened
	open, again = m.gate.open(now)
	if open && !before {
		services, node := m.gate.absentees()
		m.tell(GateOpened{Domain: m.domain, Missing: services, Node: node})
	}
	return open, again
}

// sooner returns the earlier of two times. A zero time does not count.
func sooner(a, b time.Time) time.Time { return dataplane.Earliest(a, b) }

// addDue adds to the bisection the quarantined key whose try is due. It returns when the next one is due; zero for
// none. A try of a Service that does not land may last long, so it waits while the bisection tries others.
func (m *machine) addDue(now time.Time) time.Time {
	key, due, next := m.quarantine.due(now, !m.tries.bisection.idle())
	if due {
		m.tries.bisection.alone(key, m.quarantine.tried(key))
	}
	return next
}

// triesFirst reports whether a try goes before the write that is due. After each ordinary write, one try does: if
// Services change faster than they are written, a write is always due.
func (m *machine) triesFirst(now time.Time) bool {
	if !m.tries.turn || m.tries.proving || m.pacer.Failures() > 0 {
		return false
	}
	m.addDue(now)
	return !m.tries.bisection.idle() && !m.tries.bisection.trying() && !now.Before(m.tries.next)
}

// announce emits Synced when the first sync is complete. It returns when to call it again; zero means after the next
// event.
func (m *machine) announce(now time.Time) time.Time {
	left := m.ledger.Stats()
	if m.start.synced || !m.start.adopted || left.Pending+left.Dirty > 0 || m.searching() {
		return time.Time{}
	}
	if waits, until := m.gate.awaits(now); waits {
		return until
	}
	m.start.synced = true
	m.tell(Synced{Domain: m.domain, Absent: len(m.gate.expect) + len(m.gate.skipped)})
	return time.Time{}
}

// readAhead reads the kernel once while the gate is closed, if the writer can. So after a restart,
// reading does not add to the time that it takes to list the API and to render.
func (m *machine) readAhead(now time.Time) {
	if m.canAhead && !m.start.readAhead && !m.gate.held {
		m.start.readAhead = true
		m.begin(now, job{purpose: ahead})
	}
}

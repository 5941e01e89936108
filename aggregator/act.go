package aggregator

import (
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
)

// act starts what is due and returns the time until it should be called again.
func (a *Aggregator) act(now time.Time) time.Duration {
	const never = time.Hour
	if a.inFlight {
		return never
	}
	if open, again := a.gate.open(now); !open {
		if a.readAhead() || again.IsZero() {
			return never
		}
		return again.Sub(now)
	}
	soon := a.announce(now)
	action, again := a.pacer.Next(now)
	again = sooner(again, soon)
	switch {
	case action == Audit, action == Write && !a.adopted:
		a.pacer.Auditing()
		a.repairs.auditing()
		a.dispatch(job{})
		return never
	case action == Write && !a.triesFirst(now):
		a.cut(now)
		if a.inFlight {
			return never
		}
		return 0
	case a.pacer.Failures() > 0:
		return max(0, again.Sub(now)) // after what has failed has been written
	}
	again = sooner(again, a.addDue(now))
	switch {
	case a.search.idle() && !a.recheck:
		if a.restored() { // since the search ended
			a.repairDone(now)
		}
	case a.search.trying():
		// The next cut ends the try, after a read.
	case now.Before(a.nextTry):
		again = sooner(again, a.nextTry)
	case a.tryNext(now):
		return never
	default:
		return 0 // the search is over
	}
	return max(0, again.Sub(now))
}

// sooner returns the earlier of two times; zero is none.
func sooner(a, b time.Time) time.Time { return dataplane.Earliest(a, b) }

// addDue adds the quarantined key whose try is due to the search. It returns when the next
// one is due; zero for none.
func (a *Aggregator) addDue(now time.Time) time.Time {
	key, due, next := a.quarantine.due(now)
	if due {
		a.search.alone(key, a.quarantine.tried(key))
	}
	return next
}

// triesFirst reports whether a try goes before the write that is due. After each ordinary
// write, one does: if writes are slower than others change, there is always a write due.
func (a *Aggregator) triesFirst(now time.Time) bool {
	if !a.tryTurn || a.pacer.Failures() > 0 {
		return false
	}
	a.addDue(now)
	return !a.search.idle() && !a.search.trying() && !now.Before(a.nextTry)
}

// announce emits GateOpened and Synced. It returns when to call it again; zero for after
// the next event.
func (a *Aggregator) announce(now time.Time) time.Time {
	if !a.announced {
		a.announced = true
		services, node := a.gate.absentees()
		a.config.Listen(GateOpened{Domain: a.config.Domain, Missing: services, Node: node})
	}
	left := a.ledger.Stats()
	if a.synced || !a.adopted || left.Pending+left.Dirty > 0 || a.refusal != nil || !a.search.idle() {
		return time.Time{}
	}
	if waits, until := a.gate.awaits(now); waits {
		return until
	}
	a.synced = true
	absent, _ := a.gate.absent()
	a.config.Listen(Synced{Domain: a.config.Domain, Absent: len(absent)})
	return time.Time{}
}

// readAhead reads the kernel once while the gate is closed, if the writer can. It reports
// whether it began. So after a restart, reading does not add to the time that it takes to
// list the API and to render.
func (a *Aggregator) readAhead() bool {
	_, can := a.config.Writer.(dataplane.ReaderAhead)
	if !can || a.aheadBegun || a.gate.held {
		return false
	}
	a.aheadBegun = true
	a.dispatch(job{ahead: true})
	return true
}

package aggregator

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// What happens when the kernel refuses a write. The invariant that all of it serves:
// no Service that was served right before a write is served worse after it, unless
// the API asked for it. So a Service that is held back keeps what was last in force,
// of a former process even, and the control write takes nothing away.
//
//	refused ─► control ─► hold the suspects ─► try them in groups ─► convict, or settle
//	              └─ refused: the node is at fault, nobody is held

// accusation is what a refused write has brought up, until the control is back.
type accusation struct {
	suspects, named []service.Key
	// frozen is set once the suspects are left as the kernel has them.
	frozen bool
}

// provenMax is how many may be tried again without a control. A kernel that refuses
// more at once may have another reason than they.
const provenMax = 16

// isRefusal reports whether an outcome says that something cannot be written, now or
// later.
func isRefusal(o dataplane.Outcome) bool {
	return o == dataplane.Rejected || o == dataplane.Unsupported
}

// accuse starts a search for the Services to blame for a refused write. It reports false
// if no Service can be.
func (a *Aggregator) accuse(now time.Time, batch *dataplane.Batch, receipt dataplane.Receipt) bool {
	free, held := a.suspects(batch)
	switch {
	case len(free) == 0 && len(held) > 0 && a.nodeAtFault:
		// Even after an audit the kernel refuses what is put back for those who are held.
		a.ledger.Freeze(held, a.origin)
		a.pacer.Wrote(now, receipt.Took, false, rand.Float64())
		return true
	case len(free) == 0:
		return false
	case receipt.Proven:
		if named, _ := partition(free, receipt.Suspects); len(named) > 0 {
			free = named
		}
	}
	a.pacer.Ended(now, receipt.Took)
	for _, key := range free {
		a.ledger.Hold(key)
	}
	accused := &accusation{suspects: free, named: receipt.Suspects}
	if receipt.Proven && len(free) <= provenMax {
		a.detain(now, accused)
	} else {
		a.control(now, accused)
	}
	return true
}

// control writes what is wanted without the accused.
func (a *Aggregator) control(now time.Time, accused *accusation) {
	control := a.ledger.PlanControl()
	if control == nil || len(control.Changes) == 0 {
		a.detain(now, accused)
		return
	}
	a.accused = accused
	a.dispatch(job{batch: control})
}

// suspects returns the Services that a refused batch is about and that are not in force
// with it: those whose newest fragments it held, or objects that were to be repaired.
// Services that are held already come separately.
func (a *Aggregator) suspects(batch *dataplane.Batch) (free, held []service.Key) {
	seen := map[service.Key]bool{service.Node: true}
	add := func(key service.Key) {
		switch {
		case seen[key]:
		case a.ledger.Held(key):
			held = append(held, key)
		default:
			free = append(free, key)
		}
		seen[key] = true
	}
	for _, c := range batch.Contributions {
		if a.ledger.Pending(c.Key) {
			add(c.Key)
		}
	}
	for i := range batch.Changes {
		c := &batch.Changes[i]
		if !a.ledger.Differs(c.ID) {
			continue
		}
		add(c.Owner)
		if c.After != nil {
			for _, part := range c.After.Parts {
				if len(batch.Contributions) == 0 { // else those who changed it are known
					add(part.Owner)
				}
			}
		}
	}
	return free, held
}

// detain lets the search for one of the accused begin.
func (a *Aggregator) detain(now time.Time, accused *accusation) {
	a.pacer.Recovered() // what has failed is the search's business now
	for _, key := range accused.suspects {
		a.waits.begin(key, now)
	}
	a.search.suspect(accused.suspects, accused.named)
}

// controlled takes the account of a control write. It has put back what was in force
// of the accused, where that was missing. If the kernel refuses that although it has
// been read since the last refusal, they are to blame after all: so the second control
// leaves them as the kernel has them.
func (a *Aggregator) controlled(now time.Time, receipt dataplane.Receipt) {
	accused := a.accused
	a.accused = nil
	refused := isRefusal(receipt.Outcome)
	switch {
	case receipt.Outcome == dataplane.Landed:
		a.pacer.Ended(now, receipt.Took)
		a.detain(now, accused)
		return
	case refused && a.nodeAtFault && !accused.frozen:
		accused.frozen = true
		a.pacer.Ended(now, receipt.Took)
		a.ledger.Freeze(accused.suspects, a.origin)
		a.control(now, accused)
		return
	}
	for _, key := range accused.suspects {
		a.ledger.Restore(key) // what the kernel had then is nothing to fall back to later
		a.ledger.Release(key)
	}
	a.pacer.Wrote(now, receipt.Took, false, rand.Float64())
	if refused {
		a.blameNode(now)
	}
}

// try puts the next group on trial; it reports false when nobody is left. What else
// differs is written first, so that a refusal is the group's own.
func (a *Aggregator) try(now time.Time) bool {
	defer func() {
		if a.doubtful && a.search.idle() {
			// Perhaps the newly convicted only lead to what somebody has removed.
			// Reading the kernel soon shows that, and the trials after it free them.
			a.doubtful = false
			a.pacer.AuditSoon(now)
		}
	}()
	for !a.search.idle() {
		if a.write(now) {
			return true
		}
		keys := a.search.next()
		if keys == nil {
			return false
		}
		for _, key := range keys {
			if a.search.current.restore {
				a.ledger.Restore(key)
			} else {
				a.ledger.Release(key)
			}
		}
		if a.write(now) {
			return true
		}
		a.search.landed() // the kernel has it already
	}
	return false
}

// judge takes the account of a trial.
func (a *Aggregator) judge(now time.Time, receipt dataplane.Receipt) {
	if a.search.spent > trialBurst {
		a.nextTrial = now.Add(a.pacer.Pause(receipt.Took))
	}
	if a.search.current.restore {
		a.restored(now, receipt)
		return
	}
	var rest []service.Key
	for _, key := range a.search.current.keys {
		if a.ledger.Pending(key) {
			rest = append(rest, key)
		}
	}
	if len(rest) == 0 {
		a.search.landed()
		return
	}
	for _, key := range rest {
		a.ledger.Hold(key)
	}
	if a.ledger.Stats().Dirty > 0 {
		a.pacer.Waiting(now, false) // some of it has landed, and is put back
	}
	if !isRefusal(receipt.Outcome) {
		a.search.putBack()
		a.pacer.Wrote(now, receipt.Took, false, rand.Float64())
		return
	}
	reason := fmt.Sprint(receipt.Err)
	if receipt.Proven {
		var guilty []service.Key
		guilty, rest = partition(rest, receipt.Suspects)
		for _, key := range guilty {
			a.convict(now, key, reason)
		}
		if len(guilty) > 0 {
			a.search.current = group{}
			a.search.suspect(rest, nil)
			return
		}
	}
	if culprit, found := a.search.refused(rest, receipt.Suspects); found {
		a.convict(now, culprit, reason)
		if a.ledger.Frozen(culprit) {
			a.search.restore(culprit)
		}
	}
}

// restored takes the account of a try to put back what was last in force of a culprit.
func (a *Aggregator) restored(now time.Time, receipt dataplane.Receipt) {
	switch {
	case receipt.Outcome == dataplane.Landed || a.ledger.Stats().Dirty == 0:
		a.search.landed()
	case isRefusal(receipt.Outcome):
		a.ledger.Freeze(a.search.current.keys, a.origin)
		a.search.landed() // it stays as the kernel has it
	default:
		a.search.putBack()
		a.pacer.Wrote(now, receipt.Took, false, rand.Float64())
	}
}

// trialBurst is how many tries of a search follow each other at once. Later ones keep
// the distance of ordinary writes, so that a kernel with many culprits is not written
// to without a pause.
const trialBurst = 64

// convict quarantines a key that was refused alone.
func (a *Aggregator) convict(now time.Time, key service.Key, reason string) {
	a.doubtful = a.doubtful || a.cells.cells[key] == nil
	revision := a.ledger.Latest(key)
	a.waits.end(key)
	a.cells.put(now, key, revision, reason)
	a.quarantined = nil
	a.config.Listen(Quarantined{Domain: a.config.Domain, Key: key, Revision: revision, Reason: reason})
	a.config.Verdicts(dataplane.Verdict{Key: key, Domain: a.config.Domain, Revision: revision,
		Quarantined: true, Reason: reason})
}

// blameNode says that the kernel refuses the scaffold itself. A rule may lead to
// something that somebody has removed, and the same plan would be refused again:
// so the kernel is read before the next try.
func (a *Aggregator) blameNode(now time.Time) {
	a.nodeAtFault = true
	a.pacer.AuditFirst(now)
	a.config.Listen(NodeAtFault{Domain: a.config.Domain, Reason: a.lastError})
}

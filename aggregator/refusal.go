package aggregator

import (
	"fmt"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// This file handles a write that the kernel refuses. One invariant holds: no Service
// that was served right before a write is served worse after it, unless the API asked
// for it. So a Service that is held keeps what was last in force, even from a former
// process, and the control write removes nothing. Only a culprit that has never been in force
// gives up what has landed of it.
//
//	refused ─► hold the suspects ─► control ─► try them in groups ─► quarantine, or settle
//	                                   └─ refused: the node is at fault, nobody is held

// refusal is a refused write, until its control write is done.
type refusal struct {
	suspects, named []service.Key
	// frozen is set once the suspects are left as they are in the kernel.
	frozen bool
}

// provenMax is how many proven suspects are searched without a control write. If the
// kernel refuses more at once, the cause may be another one.
const provenMax = 16

// isRefusal reports whether an outcome means that a retry cannot succeed.
func isRefusal(o dataplane.Outcome) bool {
	return o == dataplane.Rejected || o == dataplane.Unsupported
}

// refused starts a search for the Services that make the kernel refuse a write. It
// reports false if none of them can be the reason.
func (a *Aggregator) refused(now time.Time, batch *dataplane.Batch,
	receipt dataplane.Receipt) bool {
	free, held := a.suspects(batch)
	switch {
	case len(free) == 0 && len(held) > 0 && a.nodeAtFault:
		// Even after an audit the kernel refuses what is restored for held Services.
		a.ledger.Freeze(held, a.origin)
		a.pacer.Wrote(now, receipt.Took, false, a.jitter())
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
	r := &refusal{suspects: free, named: receipt.Suspects}
	if receipt.Proven && len(free) <= provenMax {
		a.startSearch(now, r)
	} else {
		a.control(now, r)
	}
	return true
}

// control writes what is wanted without the suspects.
func (a *Aggregator) control(now time.Time, r *refusal) {
	control := a.ledger.PlanControl()
	if control == nil || len(control.Changes) == 0 {
		a.startSearch(now, r)
		return
	}
	a.refusal = r
	a.dispatch(job{batch: control})
}

// suspects returns the Services of a refused batch that are not in force with it: those
// whose newest fragments it held, and those whose objects it repaired. Services that are
// already held are returned separately.
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
			for _, part := range c.After.Parts() {
				if len(batch.Contributions) == 0 { // else contributions name who changed it
					add(part.Owner)
				}
			}
		}
	}
	return free, held
}

// startSearch adds the suspects to the search.
func (a *Aggregator) startSearch(now time.Time, r *refusal) {
	a.pacer.Recovered() // the search retries what failed
	for _, key := range r.suspects {
		a.waits.begin(key, now)
	}
	a.search.suspect(r.suspects, r.named)
}

// controlDone handles the receipt of a control write. The control restored what was in
// force of the suspects and missing. If the kernel refuses that although it has been
// read since the last refusal, the suspects may be the reason after all: so a second
// control leaves them as they are in the kernel.
func (a *Aggregator) controlDone(now time.Time, receipt dataplane.Receipt) {
	r := a.refusal
	a.refusal = nil
	refused := isRefusal(receipt.Outcome)
	switch {
	case receipt.Outcome == dataplane.Landed:
		a.pacer.Ended(now, receipt.Took)
		a.startSearch(now, r)
		return
	case refused && a.nodeAtFault && !r.frozen:
		r.frozen = true
		a.pacer.Ended(now, receipt.Took)
		a.ledger.Freeze(r.suspects, a.origin)
		a.control(now, r)
		return
	}
	for _, key := range r.suspects {
		a.ledger.Restore(key) // not a state to fall back to later
		a.ledger.Release(key)
	}
	a.wrote(now, receipt, false)
	if refused {
		a.blameNode(now)
	}
}

// tryNext writes the next group of suspects. It reports false if none is left. Other
// differences are written first, so that a refusal can only be due to the group.
func (a *Aggregator) tryNext(now time.Time) bool {
	defer func() {
		if a.recheck && a.search.idle() {
			// The new culprits may only refer to something that another program removed.
			// A read soon shows that, and the tries after it release them.
			a.recheck = false
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

// tryDone handles the receipt of a try.
func (a *Aggregator) tryDone(now time.Time, receipt dataplane.Receipt) {
	if a.search.spent > tryBurst {
		a.nextTry = now.Add(a.pacer.Pause(receipt.Took))
	}
	if a.search.current.restore {
		a.restoreDone(now, receipt)
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
	if !isRefusal(receipt.Outcome) {
		a.wrote(now, receipt, false)
		return // the next cut ends the try: if the answer was lost, after a read
	}
	for _, key := range rest {
		a.ledger.Hold(key)
	}
	if a.ledger.Stats().Dirty > 0 {
		a.pacer.Waiting(now, false) // some of it has landed, and is reverted
	}
	reason := fmt.Sprint(receipt.Err)
	if receipt.Proven {
		var culprits []service.Key
		culprits, rest = partition(rest, receipt.Suspects)
		for _, key := range culprits {
			a.quarantineKey(now, key, reason)
		}
		if len(culprits) > 0 {
			a.search.current = group{}
			a.search.suspect(rest, nil)
			return
		}
	}
	if culprit, found := a.search.refused(rest, receipt.Suspects); found {
		a.quarantineKey(now, culprit, reason)
		if a.ledger.Frozen(culprit) {
			a.search.restore(culprit)
		}
	}
}

// endTry puts back the group whose try had no result. It holds what has not landed, so that
// nothing but a later try writes it. Holding earlier, before a read has shown what has landed,
// would revert innocent Services.
func (a *Aggregator) endTry() {
	for _, key := range a.search.current.keys {
		if a.ledger.Pending(key) {
			a.ledger.Hold(key)
		}
	}
	a.search.putBack()
}

// restoreDone handles the receipt of a try to restore what was last in force of a
// culprit.
func (a *Aggregator) restoreDone(now time.Time, receipt dataplane.Receipt) {
	switch {
	case receipt.Outcome == dataplane.Landed || a.ledger.Stats().Dirty == 0:
		a.search.landed()
	case isRefusal(receipt.Outcome):
		a.ledger.Freeze(a.search.current.keys, a.origin)
		a.search.landed() // it stays as it is in the kernel
	default:
		a.search.putBack()
		a.wrote(now, receipt, false)
	}
}

// tryBurst is how many tries of a search follow each other without a pause. Later ones
// keep the spacing of ordinary writes.
const tryBurst = 64

// quarantineKey quarantines a key that was refused alone, or proven.
func (a *Aggregator) quarantineKey(now time.Time, key service.Key, reason string) {
	a.recheck = a.recheck || a.quarantine.held[key] == nil
	revision := a.ledger.Latest(key)
	a.waits.end(key)
	if a.ledger.Withhold(key) {
		a.pacer.Waiting(now, false)
	}
	a.quarantine.put(now, key, revision, reason)
	a.listed = nil
	a.config.Listen(Quarantined{Domain: a.config.Domain, Key: key, Revision: revision, Reason: reason, At: now})
	a.config.Verdicts(dataplane.Verdict{Key: key, Domain: a.config.Domain, Revision: revision,
		Quarantined: true, Reason: reason})
}

// blameNode reports that the kernel refuses the scaffold itself. A rule may refer to
// something that another program removed. The same plan would be refused again, so the
// kernel is read before the next write.
func (a *Aggregator) blameNode(now time.Time) {
	a.nodeAtFault = true
	a.pacer.AuditFirst(now)
	a.config.Listen(NodeAtFault{Domain: a.config.Domain, Reason: a.lastError})
}

package aggregator

import (
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// This file carries out the tries of a search.

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
		a.tryTurn = false
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
	rest := a.pending(a.search.current.keys)
	if len(rest) == 0 {
		a.search.landed()
		return
	}
	if !isRefusal(receipt.Outcome) {
		a.unanswered(now, receipt)
		return
	}
	for _, key := range rest {
		a.ledger.Hold(key)
	}
	if a.ledger.Stats().Dirty > 0 {
		a.pacer.Waiting(now) // some of it has landed, and is reverted
	}
	if receipt.Proven {
		var culprits []service.Key
		culprits, rest = partition(rest, receipt.Suspects)
		for _, key := range culprits {
			a.quarantineKey(now, key, &receipt)
		}
		if len(culprits) > 0 {
			a.search.current = group{}
			a.search.suspect(rest, nil)
			return
		}
	}
	if culprit, found := a.search.refused(rest, receipt.Suspects); found {
		a.convict(now, culprit, &receipt)
	}
}

// pending returns those of the keys that are not in force.
func (a *Aggregator) pending(keys []service.Key) (rest []service.Key) {
	for _, key := range keys {
		if a.ledger.Pending(key) {
			rest = append(rest, key)
		}
	}
	return rest
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
		a.unanswered(now, receipt)
	}
}

// tryBurst is how many tries of a search follow each other without a pause. Later ones
// keep the spacing of ordinary writes.
const tryBurst = 64

// A try may last as long as four usual writes, 5 s at least. From 20 s on, two usual writes are enough.
// Without a limit, a write that hangs would make each try last as long as an ordinary write may, and the
// search tens of minutes.
const (
	tryMin  = 5 * time.Second
	tryLong = 20 * time.Second
	// heldMax limits most tries of a Service that is known not to land. One in heldFull may last as long
	// as any write.
	heldMax  = 40 * time.Second
	heldFull = 8
)

// tryLimit returns how long the current try may last. One that lasts longer did not land. Each
// further try of the same Service may last twice as long: it may have very many objects.
func (a *Aggregator) tryLimit() time.Duration {
	first := max(tryMin, min(4*a.usual, max(tryLong, 2*a.usual), jobTimeout))
	misses, most := a.search.current.misses, jobTimeout
	if a.knownNotToLand(a.search.current.keys[0]) && misses%heldFull != 0 {
		most = max(first, heldMax)
	}
	for ; misses > 0 && first < most; misses-- {
		first *= 2
	}
	return min(first, most)
}

// learnUsual updates the duration of usual writes. One that was rejected shows that writes take no less.
func (a *Aggregator) learnUsual(receipt *dataplane.Receipt) {
	switch {
	case receipt.Outcome == dataplane.Landed:
		a.usual = max(receipt.Took, a.usual/2)
	case isRefusal(receipt.Outcome):
		a.usual = max(receipt.Took, a.usual)
	}
}

// knownNotToLand reports whether a key is quarantined because it does not land.
func (a *Aggregator) knownNotToLand(key service.Key) bool {
	q := a.quarantine.held[key]
	return q != nil && q.Cause == DoesNotLand
}

// unanswered handles the receipt of a try that failed without a refusal. If the answer was
// lost, a read comes before the end of the try.
func (a *Aggregator) unanswered(now time.Time, receipt dataplane.Receipt) {
	a.pacer.Ended(now, receipt.Took)
	a.search.missed++
	a.nextTry = laterOf(a.nextTry, now.Add(a.pacer.Retry(a.search.missed)))
	a.search.current.unanswered = &receipt
	if receipt.Outcome == dataplane.Unknown {
		a.pacer.Waiting(now)
		return
	}
	a.endTry(now)
}

// endTry ends a try without an answer. It holds what has not landed, so that nothing but a later
// try writes it. Holding earlier, before a read has shown what has landed, would revert innocent
// Services.
func (a *Aggregator) endTry(now time.Time) {
	if !a.search.trying() {
		return
	}
	try := a.search.current
	if try.restore {
		a.endRestore()
		return
	}
	rest := a.pending(try.keys)
	for _, key := range rest {
		a.ledger.Hold(key)
	}
	if a.ledger.Stats().Dirty > 0 {
		a.pacer.Waiting(now)
	}
	if len(rest) == 0 {
		a.search.landed()
		return
	}
	known := a.knownNotToLand(try.keys[0])
	culprit, found := a.search.unlanded(rest, known)
	switch {
	case !found:
	case known:
		a.convict(now, culprit, try.unanswered)
	default:
		a.control(now, &refusal{suspects: rest, culprit: try.unanswered})
	}
}

// endRestore ends a try to restore what was last in force of a culprit. If that does not land
// again and again, it stays as it is in the kernel.
func (a *Aggregator) endRestore() {
	switch {
	case a.ledger.Stats().Dirty == 0:
		a.search.landed()
	case a.search.current.misses+1 < failuresMax:
		a.search.putBack()
	default:
		a.ledger.Freeze(a.search.current.keys, a.origin)
		a.search.landed()
	}
}

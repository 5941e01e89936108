package aggregator

import (
	"math/rand/v2"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// isRefusal tells whether an outcome says that something cannot be written, not
// only now.
func isRefusal(o dataplane.Outcome) bool {
	return o == dataplane.Rejected || o == dataplane.Unsupported
}

// suspectsOf gives the Services whose fragments are in a batch for the first
// time.
func suspectsOf(batch *dataplane.Batch) []service.Key {
	var keys []service.Key
	for _, c := range batch.Contributions {
		if c.Key != service.Node {
			keys = append(keys, c.Key)
		}
	}
	return keys
}

// judge lets the search take note of a receipt.
func (a *Aggregator) judge(now time.Time, receipt dataplane.Receipt, landed bool) {
	switch {
	case landed:
		a.follow(now, a.search.landed())
	case isRefusal(receipt.Outcome):
		a.follow(now, a.search.refused(a.lastError))
	default:
		a.follow(now, a.search.abandon())
		a.pacer.Wrote(now, receipt.Took, false, rand.Float64())
	}
}

// follow carries out the steps of a search until one needs a write, or the
// search is done.
func (a *Aggregator) follow(now time.Time, s step) {
	for {
		for _, key := range s.hold {
			a.ledger.Hold(key)
		}
		a.sentence(now)
		for _, key := range s.release {
			a.ledger.Release(key)
		}
		if s.control {
			a.ledger.Doubt(service.Node)
		}
		if s.done {
			a.endSearch(now, s)
			return
		}
		if a.write(now) {
			return
		}
		s = a.search.landed() // nothing to write: the kernel has it
	}
}

// sentence quarantines those whom the search has newly found guilty.
func (a *Aggregator) sentence(now time.Time) {
	for _, c := range a.search.guilty {
		if a.cells.cells[c.key] == nil {
			// Perhaps it only leads to what somebody has removed. Reading the
			// kernel soon shows that, and the trial after it frees the key.
			a.pacer.AuditSoon(now)
		}
		a.ledger.Hold(c.key)
		revision := a.ledger.Latest(c.key)
		a.cells.put(now, c.key, revision, c.reason)
		a.config.Listen(Quarantined{Domain: a.config.Domain, Key: c.key, Revision: revision, Reason: c.reason})
		a.config.Verdicts(dataplane.Verdict{Key: c.key, Domain: a.config.Domain, Revision: revision,
			Quarantined: true, Reason: c.reason})
	}
	a.search.guilty = nil
}

func (a *Aggregator) endSearch(now time.Time, s step) {
	a.search = nil
	if s.nodeAtFault {
		a.pacer.Wrote(now, 0, false, rand.Float64())
		a.blameNode(now)
		return
	}
	// What the search held back and took out again is planned once more.
	if !a.inFlight {
		a.write(now)
	}
}

package aggregator

import (
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/ledger"
	"github.com/sluice-proxy/sluice/service"
)

// Status is a snapshot of a domain for health, metrics and people. It is
// replaced whole and never changed.
type Status struct {
	Domain string
	// Open is false while the first write is held back; Missing counts the
	// keys it waits for.
	Open    bool
	Missing int
	// OldestPending is since when the oldest fragment waits for a verdict;
	// zero when nothing is pending. The age of this answers whether the domain
	// is healthy.
	OldestPending time.Time
	// Waiting is the number of fragments that have been handed over and that no
	// batch has taken yet; Submitted is when the newest fragment was handed over,
	// zero before the first.
	Waiting   int
	Submitted time.Time
	// LastWrite is the end of the last write that landed.
	LastWrite time.Time
	// Failures counts the failed writes since then; LastError is the last one.
	Failures  int
	LastError string
	// NodeAtFault is set while the kernel refuses the scaffold itself.
	NodeAtFault bool
	// Quarantined lists the keys that are held back.
	Quarantined []QuarantinedKey
	Ledger      ledger.Stats
}

// QuarantinedKey is one key in quarantine.
type QuarantinedKey struct {
	Key      service.Key
	Revision service.Revision
	Reason   string
	Since    time.Time
}

// publish replaces the snapshot.
func (a *Aggregator) publish() {
	s := &Status{
		Domain: a.config.Domain, Open: a.gate.opened, Missing: a.gate.missing(),
		OldestPending: a.oldestPending(), LastWrite: a.lastWrite,
		Failures: a.pacer.Failures(), LastError: a.lastError, NodeAtFault: a.nodeAtFault,
		Ledger: a.ledger.Stats(),
	}
	if a.quarantined == nil {
		for _, key := range a.cells.keys() {
			c := a.cells.cells[key]
			a.quarantined = append(a.quarantined, QuarantinedKey{Key: key,
				Revision: c.revision, Reason: c.reason, Since: c.since})
		}
	}
	s.Quarantined = a.quarantined
	a.status.Store(s)
}

// oldestPending is since when something is wanted and not in force, unless it is
// convicted. What holds it back does not matter.
func (a *Aggregator) oldestPending() time.Time {
	return dataplane.Earliest(dataplane.Earliest(a.waits.oldest(), a.arrived), a.drifted)
}

package aggregator

import (
	"time"

	"github.com/sluice-proxy/sluice/dataplane/ledger"
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
	Key      string
	Revision string
	Reason   string
	Since    time.Time
}

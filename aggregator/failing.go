// SPDX-License-Identifier: Apache-2.0

package aggregator

import (
	"fmt"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// This file handles writes that fail without a rejection: a lock was held, a buffer was full,
// or the answer was lost. Nearly always the host is the reason, and a retry lands. But if it
// is one Service, a retry of the same batch fails forever, and no other Service changes. So
// after a few failures the same bisection as for a rejection finds the Services that do not land.
//
//	failed ─► retry … ─► hold the suspects ─► control ─► try them in halves ─► alone ─► control ─► quarantine
//	                                             └─ failed: the host is the reason, no Service is held  ┘
//
// Two things differ from a rejection. One failure proves nothing, so a Service is quarantined
// only if it failed alone several times, and a control write landed right after. And
// what landed is known only after a read, if the answer was lost.

// failing describes ordinary writes that failed one after the other without a rejection.
type failing struct {
	// batch is that of the last write; times counts the writes, and spent is their total duration.
	batch   *dataplane.Batch
	receipt dataplane.Receipt
	times   int
	spent   time.Duration
	// unread is set if it is not known what the last write left in the kernel.
	unread bool
	// freeze is set if the control write failed too. That write restored missing objects of the suspects, which may be
	// the objects that do not land.
	freeze bool
}

// failuresMax is how many ordinary writes, and tries of one Service, fail in a row before the host no longer counts as
// the reason. If writes fail slowly, fewer are enough.
const failuresMax = 4

// Cause is why a Service is quarantined.
type Cause uint8

const (
	// Rejected: the kernel rejects what the Service wants.
	Rejected Cause = iota
	// DoesNotLand: every write of what the Service wants fails, with no answer from the
	// kernel that says why: it meets a lock, a full buffer or a lack of memory, or it is not done in time.
	DoesNotLand
	causes // their number
)

// String returns the cause as it is shown to people.
func (c Cause) String() string { return [...]string{"rejected", "does not land"}[c] }

func causeOf(o dataplane.Outcome) Cause {
	if isRejection(o) {
		return Rejected
	}
	return DoesNotLand
}

// reasonOf returns the error of a receipt. Unless it is a rejection, the cause and the outcome precede it.
func reasonOf(receipt *dataplane.Receipt) string {
	if cause := causeOf(receipt.Outcome); cause != Rejected {
		return fmt.Sprintf("%v: %v: %v", cause, receipt.Outcome, receipt.Err)
	}
	return fmt.Sprint(receipt.Err)
}

// isolate starts a bisection if ordinary writes fail again and again. The caller checks whether
// a control write is in flight afterwards.
func (m *machine) isolate(now time.Time) {
	f := m.failing
	if f.unread && f.times < 2*failuresMax {
		return // a hold reverts what has landed of a Service: read the kernel first
	}
	if f.batch == nil || m.isolateFew(now) || f.times < failuresMax {
		return
	}
	m.failing = failing{}
	free, held := m.suspects(f.batch)
	if len(free) == 0 || f.freeze {
		m.ledger.Freeze(held, m.origin) // their last rules may be what does not land
	}
	r := &rejection{suspects: free, frozen: f.freeze, unlanded: f.batch}
	if f.freeze {
		m.ledger.Freeze(free, m.origin)
	}
	for _, key := range free {
		m.ledger.Hold(key)
	}
	if (len(free) == 0 || f.freeze) && m.withoutNode(now, r, f.receipt) || len(free) == 0 {
		return
	}
	m.writeWithoutSuspects(now, r)
}

// isolateFew starts a bisection for the rest of a write if all but a few Services of it are
// applied. What landed shows that the host is not the reason, so only those few are retried with
// a pause, and the others do not wait. It reports whether it did.
func (m *machine) isolateFew(now time.Time) bool {
	batch := m.failing.batch
	free, _ := m.suspects(batch)
	if len(free) == 0 || len(free) > provenMax || len(free) >= len(batch.Contributions) || m.ledger.Pending(service.Node) {
		return false
	}
	m.failing = failing{}
	for _, key := range free {
		m.ledger.Hold(key)
	}
	m.startBisection(now, &rejection{suspects: free, unlanded: batch})
	if m.ledger.Stats().Dirty > 0 {
		m.pacer.Waiting(now)
	}
	return true
}

// controlFailed notes that a control write failed without a rejection. The next one leaves the
// suspects as they are in the kernel. If that fails as well, the host is the reason.
func (m *machine) controlFailed(r *rejection, receipt dataplane.Receipt) {
	if r.unlanded != nil && !r.frozen {
		m.failing = failing{batch: r.unlanded, receipt: receipt, times: failuresMax, freeze: true}
	}
}

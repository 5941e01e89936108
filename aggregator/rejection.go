// SPDX-License-Identifier: Apache-2.0

package aggregator

import (
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// This file handles a write that the kernel rejects. One invariant holds: no Service
// that was served right before a write is served worse after it, unless the API asked
// for it. So a Service that is held keeps what was last applied, even by a previous process, and the control write
// removes nothing. Only a culprit that was never applied loses those of its objects that landed.
//
//	rejected ─► hold the suspects ─► control ─► try them in groups ─► quarantine, or settle
//	                                   └─ rejected: control with the node's last fragment ─► quarantine the node's newest one
//	                                         └─ rejected: the node is at fault, no Service is held

// rejection is a write that was rejected or did not land, until its control write is done.
type rejection struct {
	suspects, named []service.Key
	// frozen is set once the suspects are left as they are in the kernel.
	frozen bool
	// unlanded is the batch, if it was not rejected.
	unlanded *dataplane.Batch
	// culprit is the receipt of the last try of the only suspect, if the control write is
	// to show that nothing else keeps it from landing.
	culprit *dataplane.Receipt
	// node is the receipt with which the node's newest fragment failed, if the control write
	// leaves that out; nodeHeld is set from then on.
	node     *dataplane.Receipt
	nodeHeld bool
}

// provenMax is how many proven suspects are bisected without a control write. If the
// kernel rejects more together, the cause may be another one.
const provenMax = 16

// isRejection reports whether an outcome means that a retry cannot succeed.
func isRejection(o dataplane.Outcome) bool {
	return o == dataplane.Rejected || o == dataplane.Unsupported
}

// rejected starts a bisection for the Services that make the kernel reject a write. It
// reports false if none of them can be the reason.
func (m *machine) rejected(now time.Time, batch *dataplane.Batch,
	receipt dataplane.Receipt) bool {
	free, held := m.suspects(batch)
	switch {
	case len(free) == 0 && len(held) > 0 && m.health.nodeAtFault:
		// Even after an audit the kernel rejects what is restored for held Services.
		m.ledger.Freeze(held, m.origin)
		m.pacer.Wrote(now, receipt.Took, false, m.jitter())
		return true
	case len(free) == 0:
		if !m.withoutNode(now, &rejection{}, receipt) {
			return false
		}
		m.pacer.Ended(now, receipt.Took)
		return true
	case receipt.Proven:
		if named, _ := partition(free, receipt.Suspects); len(named) > 0 {
			free = named
		}
	}
	m.pacer.Ended(now, receipt.Took)
	for _, key := range free {
		m.ledger.Hold(key)
	}
	r := &rejection{suspects: free, named: receipt.Suspects}
	if receipt.Proven && len(free) <= provenMax {
		m.startBisection(now, r)
	} else {
		m.writeWithoutSuspects(now, r)
	}
	return true
}

// controlling reports whether a control write is in flight.
func (m *machine) controlling() bool { return m.flight != nil && m.flight.purpose == control }

// writeWithoutSuspects writes what is wanted without the suspects.
func (m *machine) writeWithoutSuspects(now time.Time, r *rejection) {
	batch := m.ledger.PlanControl()
	if batch == nil || len(batch.Changes) == 0 {
		m.controlLanded(now, r)
		return
	}
	m.begin(now, job{purpose: control, batch: batch, rejection: r})
}

// controlLanded handles the end of a control write that landed.
func (m *machine) controlLanded(now time.Time, r *rejection) {
	if r.culprit != nil {
		m.quarantineCulprit(now, r.suspects[0], r.culprit)
		return
	}
	m.startBisection(now, r)
	if r.node != nil {
		m.quarantineCulprit(now, service.Node, r.node)
	}
}

// withoutNode writes the control with what was last applied of the node itself. It reports false
// if the node has nothing newer, nothing to fall back to, or if that has been tried.
func (m *machine) withoutNode(now time.Time, r *rejection, receipt dataplane.Receipt) bool {
	if r.nodeHeld || !m.ledger.Replaces(service.Node) {
		return false
	}
	m.ledger.Hold(service.Node)
	r.node, r.nodeHeld = &receipt, true
	m.writeWithoutSuspects(now, r)
	return true
}

// suspects returns the Services of a rejected batch that are not applied with it: those whose newest fragments it
// contained, and those whose objects it repaired. Services that are already held are returned separately.
func (m *machine) suspects(batch *dataplane.Batch) (free, held []service.Key) {
	seen := map[service.Key]bool{service.Node: true}
	add := func(key service.Key) {
		switch {
		case seen[key]:
		case m.ledger.Held(key):
			held = append(held, key)
		default:
			free = append(free, key)
		}
		seen[key] = true
	}
	for _, c := range batch.Contributions {
		if m.ledger.Pending(c.Key) {
			add(c.Key)
		}
	}
	for i := range batch.Changes {
		c := &batch.Changes[i]
		if !m.ledger.Differs(c.ID) {
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

// startBisection adds the suspects to the bisection.
func (m *machine) startBisection(now time.Time, r *rejection) {
	m.pacer.Recovered()  // the bisection retries what failed
	m.tries.turn = false // what others have changed meanwhile goes first
	for _, key := range r.suspects {
		m.pending.seek(key, now)
	}
	if r.unlanded != nil || r.node != nil {
		m.tries.bisection.doubt(r.suspects)
		return
	}
	m.tries.bisection.suspect(r.suspects, r.named)
}

// controlDone handles the receipt of a control write. That write restored missing objects of the suspects' last applied
// state. If the kernel rejects it although an audit was made since the last rejection, the suspects may be the reason
// after all. So a second control write leaves them as they are in the kernel.
func (m *machine) controlDone(now time.Time, r *rejection, receipt dataplane.Receipt) {
	rejected := isRejection(receipt.Outcome)
	if receipt.Outcome != dataplane.Landed && r.node != nil {
		m.ledger.Release(service.Node) // it is not the reason
		r.node = nil
	}
	switch {
	case receipt.Outcome == dataplane.Landed:
		m.pacer.Ended(now, receipt.Took)
		m.controlLanded(now, r)
		return
	case r.culprit != nil:
		m.tries.bisection.doubt(r.suspects) // the host fails
		m.wrote(now, receipt, false)
		if rejected {
			m.nodeRejected(now)
		}
		return
	case rejected && m.withoutNode(now, r, receipt):
		m.pacer.Ended(now, receipt.Took)
		return
	case rejected && m.health.nodeAtFault && !r.frozen:
		r.frozen = true
		m.pacer.Ended(now, receipt.Took)
		m.ledger.Freeze(r.suspects, m.origin)
		m.writeWithoutSuspects(now, r)
		return
	}
	for _, key := range r.suspects {
		m.ledger.Restore(key) // not a state to fall back to later
		m.ledger.Release(key)
	}
	m.wrote(now, receipt, false)
	if rejected {
		m.nodeRejected(now)
		return
	}
	m.controlFailed(r, receipt)
}

// nodeRejected reports that the kernel rejects the scaffold itself. A rule may refer to
// something that another program removed. The same plan would be rejected again, so the
// kernel is read before the next write.
func (m *machine) nodeRejected(now time.Time) {
	m.health.nodeAtFault = true
	m.pacer.AuditFirst(now)
	m.tell(NodeAtFault{Domain: m.domain, Reason: m.health.lastError})
}

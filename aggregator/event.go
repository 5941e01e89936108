// SPDX-License-Identifier: Apache-2.0

package aggregator

import (
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/ledger"
	"github.com/sluice-proxy/sluice/service"
)

// Event is something that happened in a domain; one of the types in this file.
type Event interface{ event() }

// GateOpened reports that the startup gate opened, so the first write may start.
type GateOpened struct {
	Domain string
	// Missing counts the Services that had not submitted when the wait was over, and
	// Node reports whether the node itself had not.
	Missing int
	Node    bool
}

// Synced reports, once, that the first sync is complete: every Service that existed at the
// start is applied or quarantined, except for those whose actors have not submitted.
type Synced struct {
	Domain string
	// Absent counts the Services that have not submitted, without those that ask for too much.
	Absent int
}

// BatchWritten reports the end of a write.
type BatchWritten struct {
	Domain  string
	Batch   *dataplane.Batch
	Receipt dataplane.Receipt
}

// Applied reports that a key's fragment is fully in the kernel.
type Applied struct {
	Domain string
	dataplane.Contribution
	At time.Time
	// Batched is when the write that settled it began, and Batch the number of its
	// batch. They are zero if nothing had to be written.
	Batched time.Time
	Batch   uint64
}

// AuditDone reports what an audit found.
type AuditDone struct {
	Domain string
	Drift  ledger.Drift
	// Objects are the objects read, as composed objects if the domain has a layout.
	// They must not be changed.
	Objects []dataplane.Object
	Took    time.Duration
	Err     error
}

// RepairBegan reports that another program undid objects that were in the kernel as wanted, and that they are being
// written again.
type RepairBegan struct {
	Domain string
	Undone ledger.Undone
	// Examples describe a few of the objects.
	Examples []string
	// By is the last process that changed our objects, if the kernel reports it.
	By dataplane.ForeignProcess
	// Again counts how often in a row the same objects were repaired recently. Pause
	// is how long the repair waits for that reason; 0 for a first repair.
	Again int
	Pause time.Duration
}

// Repaired reports that the undone objects are in the kernel again, except for those of Services that were quarantined
// in the meantime.
type Repaired struct {
	Domain string
	// Repairs counts the repairs since the last Repaired, nearly always one; Objects
	// counts their objects.
	Repairs, Objects int
	// Took is the time since the first was noticed: since the kernel announced the
	// change, or since the beginning of the audit that found it.
	Took time.Duration
}

// PartlyRepaired reports that a write brought rules back before the culprit of a rejection is found, during a repair or
// before the first sync. Repaired or Synced follows when the culprit is found.
type PartlyRepaired struct{ Domain string }

// Quarantined reports that a key's fragment is held because the kernel rejects it, or because
// it does not land.
type Quarantined struct {
	Domain   string
	Key      service.Key
	Revision service.Revision
	Cause    Cause
	Reason   string
	At       time.Time
	// Again means that the key was tried again in quarantine, and failed for the same reason.
	Again bool
}

// Freed reports that a quarantined key has been accepted.
type Freed struct {
	Domain string
	Key    service.Key
}

// NodeAtFault reports that the kernel rejects the scaffold itself, so that no Service is
// the culprit. It rejects the node's newest rules, and there are no previous ones, or it rejects those, too.
type NodeAtFault struct {
	Domain string
	Reason string
}

// LateRejected reports that a late fragment of a previous incarnation was dropped.
type LateRejected struct {
	Domain   string
	Key      service.Key
	Revision service.Revision
}

func (GateOpened) event()     {}
func (Synced) event()         {}
func (BatchWritten) event()   {}
func (Applied) event()        {}
func (AuditDone) event()      {}
func (RepairBegan) event()    {}
func (Repaired) event()       {}
func (PartlyRepaired) event() {}
func (Quarantined) event()    {}
func (Freed) event()          {}
func (NodeAtFault) event()    {}
func (LateRejected) event()   {}

package aggregator

import (
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/ledger"
	"github.com/sluice-proxy/sluice/service"
)

// Event is something that happened in a domain; one of the types in this file.
type Event interface{ event() }

// GateOpened says that the first write may start.
type GateOpened struct {
	Domain string
	// Missing counts the keys that had not submitted when the wait was over.
	Missing int
}

// BatchWritten says how a write ended.
type BatchWritten struct {
	Domain  string
	Batch   *dataplane.Batch
	Receipt dataplane.Receipt
}

// Applied says that a key's fragment is wholly in the kernel.
type Applied struct {
	Domain string
	dataplane.Contribution
	At time.Time
}

// AuditDone says what reading the kernel back has found.
type AuditDone struct {
	Domain string
	Drift  ledger.Drift
	// Objects are those that were read, as composed objects where the domain
	// has a layout. They must not be changed.
	Objects []dataplane.Object
	Took    time.Duration
	Err     error
}

// RepairBegan says that an audit found undone what was in the kernel as wanted, so that
// somebody else has done it, and that it is being written again.
type RepairBegan struct {
	Domain string
	Undone ledger.Undone
	// Examples are a few of its objects in words.
	Examples []string
	// By is who has touched the kernel last, where the kernel tells.
	By dataplane.Stranger
	// Again counts how often in a row the same objects were repaired a moment ago,
	// and Pause is how long the repair waits for that reason; 0 for a first one.
	Again int
	Pause time.Duration
}

// Repaired says that what was undone is in the kernel again.
type Repaired struct {
	Domain string
	// Repairs counts those that have begun since the last Repaired, nearly always
	// one, and Objects what they were about.
	Repairs, Objects int
	// Took is the time since the first was noticed: since the kernel announced it,
	// or since the audit began that found it.
	Took time.Duration
}

// Quarantined says that a key's fragment is held back because the kernel
// refuses it.
type Quarantined struct {
	Domain   string
	Key      service.Key
	Revision service.Revision
	Reason   string
}

// Freed says that a quarantined key has been accepted again.
type Freed struct {
	Domain string
	Key    service.Key
}

// NodeAtFault says that the kernel refuses the scaffold itself, so that no
// Service is to blame.
type NodeAtFault struct {
	Domain string
	Reason string
}

// LateRefused says that the output of a former incarnation came late and was
// refused.
type LateRefused struct {
	Domain   string
	Key      service.Key
	Revision service.Revision
}

// Shadowed says that a Service wants frontends that another one serves, since it is
// older. It is told when the kernel is as said, once for each frontend and server.
type Shadowed struct {
	Domain string
	// Key is the Service that loses, By the one that serves the frontends.
	Key, By   service.Key
	Frontends dataplane.Frontends
}

// Unshadowed says that a Service that was Shadowed is so no longer: it serves the
// frontends now, or has nothing to serve there (it has lost its endpoints, or does
// not want them any more).
type Unshadowed struct {
	Domain string
	// By has served the frontends until now.
	Key, By   service.Key
	Frontends dataplane.Frontends
}

func (GateOpened) event()   {}
func (BatchWritten) event() {}
func (Applied) event()      {}
func (AuditDone) event()    {}
func (RepairBegan) event()  {}
func (Repaired) event()     {}
func (Quarantined) event()  {}
func (Freed) event()        {}
func (NodeAtFault) event()  {}
func (LateRefused) event()  {}
func (Shadowed) event()     {}
func (Unshadowed) event()   {}

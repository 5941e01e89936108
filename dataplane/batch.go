// SPDX-License-Identifier: Apache-2.0

package dataplane

import (
	"fmt"
	"time"

	"github.com/sluice-proxy/sluice/service"
)

// Batch is one write: the differences between what is wanted and what is known to be in
// the kernel, and the fragments that it settles. It is immutable.
type Batch struct {
	// Number counts the batches of a domain from 1. A batch without changes has the number of the one before.
	Number uint64
	// Changes are sorted by ID. The writer orders them so that every prefix of what
	// lands is a correct state.
	Changes []Change
	// Contributions are the fragments that this batch settles.
	Contributions []Contribution
	// Left counts the planned changes that are left for later batches; see Writer.Cut.
	Left int
}

// Change brings one object from its known state to its wanted one.
type Change struct {
	ID ID
	// Before is what is known to be in the kernel, nil if the object is absent.
	Before *Object
	// After is what is wanted, nil to remove the object.
	After *Object
	// Owner is the Service of the object. It is service.Node for the scaffold and for
	// composed objects, whose Parts name the owners.
	Owner service.Key
	// Unsure is set if the kernel's state of this object is unknown: Before may be
	// wrong, and the object may or may not exist.
	Unsure bool
}

// Contribution is one fragment's share of a batch.
type Contribution struct {
	Key      service.Key
	Revision service.Revision
	// Trigger and Received are the earliest of the coalesced fragments; see Fragment.
	Trigger, Received time.Time
	// Trace is the fragment's trace, with the causes and the earliest Seen of the fragments that it replaced.
	Trace Trace
}

// Outcome is the result of a write.
type Outcome uint8

const (
	// Landed: everything in the batch is in the kernel.
	Landed Outcome = iota
	// Busy: a lock was held or a buffer was full. A retry may succeed.
	Busy
	// Unknown: the write timed out or was killed.
	Unknown
	// Rejected: the kernel or its tool rejected something.
	Rejected
	// Unsupported: a feature is missing on this node.
	Unsupported
)

// String returns the outcome's name in logs and metrics.
func (o Outcome) String() string {
	return [...]string{"landed", "busy", "unknown", "rejected", "unsupported"}[o]
}

// Receipt is a writer's report on one write.
type Receipt struct {
	Outcome Outcome
	// Certain has the objects of the batch whose state is certain after a write that did not land; nil means absent.
	// The state of the other objects is unknown: they must be read or written again.
	Certain map[ID]*Object
	// Suspects are the Services that the error names: a hint, no proof unless Proven
	// is set.
	Suspects []service.Key
	// Proven is set if only objects of the Suspects were rejected, each alone, and other
	// objects of the batch have landed: neither the node nor another Service is the
	// reason. The aggregator quarantines them without another try.
	Proven bool
	// Err has the message of the kernel or its tool; nil if Landed.
	Err error
	// Written counts what was handed to the kernel.
	Written Written
	// Took is how long the write lasted.
	Took time.Duration
}

// Written counts the work of a write.
type Written struct {
	// Objects is the number of objects created, replaced or removed.
	Objects int
	// Lines is the number of rules or elements in the input.
	Lines int
	// Bytes is the size of the input handed to the kernel or its tool.
	Bytes int
	// Calls is the number of commands or messages.
	Calls int
}

// Add sums two counts.
func (w Written) Add(other Written) Written {
	return Written{
		Objects: w.Objects + other.Objects,
		Lines:   w.Lines + other.Lines,
		Bytes:   w.Bytes + other.Bytes,
		Calls:   w.Calls + other.Calls,
	}
}

// String describes the receipt in one line.
func (r Receipt) String() string {
	if r.Err == nil {
		return fmt.Sprintf("%s: %d objects, %d bytes", r.Outcome, r.Written.Objects, r.Written.Bytes)
	}
	return fmt.Sprintf("%s: %v", r.Outcome, r.Err)
}

// Ack is the result of a fragment: applied or quarantined. An ack for a revision settles every
// earlier one of the same key and domain.
type Ack struct {
	Key      service.Key
	Domain   string
	Revision service.Revision
	// Quarantined is false if the fragment is applied. A quarantined fragment is held,
	// and the last applied objects stay in the kernel.
	Quarantined bool
	// Reason is the kernel's message if Quarantined.
	Reason string
}

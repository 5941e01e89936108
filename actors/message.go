// SPDX-License-Identifier: Apache-2.0

package actors

import (
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// Message is a message to an actor; one of the types in this file.
type Message interface{ message() }

// Cause says when a change happened.
type Cause struct {
	// Trigger is when the change was caused in the cluster; zero if unknown.
	Trigger time.Time
	// Received is when the source delivered it.
	Received time.Time
}

// SpecChanged carries the present spec of the Service; nil means that it is gone.
type SpecChanged struct {
	Spec *service.Spec
	// Anew is set if the Service was gone for a while, in a message that this one
	// replaced. Changes of its slices during that time were not posted.
	Anew bool
	Cause
}

// SliceChanged carries the present state of one EndpointSlice; nil means that it is
// gone.
type SliceChanged struct {
	Name  string
	Slice *service.Slice
	Cause
}

// FactsChanged announces new facts. It carries none: several goroutines announce
// changes, and their announcements can overtake each other. The receiver reads the
// current facts.
type FactsChanged struct{}

// Acknowledged is the answer to a fragment.
type Acknowledged struct {
	dataplane.Ack
}

func (SpecChanged) message()  {}
func (SliceChanged) message() {}
func (FactsChanged) message() {}
func (Acknowledged) message() {}

// slot is the key of an actor's mailbox. There is at most one waiting message per
// slot.
type slot struct {
	kind slotKind
	// name is that of the slice or the domain; empty for other kinds.
	name string
}

type slotKind uint8

const (
	slotSpec slotKind = iota
	slotSlice
	slotFacts
	slotAck
)

// merge replaces the older message by the newer one and keeps the earliest cause.
func merge(older, newer Message) Message {
	switch n := newer.(type) {
	case SpecChanged:
		if o, ok := older.(SpecChanged); ok {
			n.Anew = o.Anew || o.Spec == nil
			n.Cause = n.Cause.or(o.Cause)
		}
		return n
	case SliceChanged:
		if o, ok := older.(SliceChanged); ok {
			n.Cause = n.Cause.or(o.Cause)
		}
		return n
	default:
		return newer
	}
}

// or returns the earlier times of two causes.
func (c Cause) or(other Cause) Cause {
	return Cause{Trigger: dataplane.Earliest(c.Trigger, other.Trigger),
		Received: dataplane.Earliest(c.Received, other.Received)}
}

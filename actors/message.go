package actors

import (
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// Message is what an actor can be told; one of the types in this file.
type Message interface{ message() }

// Cause is when something came about.
type Cause struct {
	// Trigger is when the change was caused in the cluster; zero when unknown.
	Trigger time.Time
	// Received is when the source handed it over.
	Received time.Time
}

// SpecChanged says what the Service is now; nil means that it is gone.
type SpecChanged struct {
	Spec *service.Spec
	// Anew says that the Service was gone for a while, in a message whose seat
	// this one has taken. What happened to its slices then was told to nobody.
	Anew bool
	Cause
}

// SliceChanged says what one EndpointSlice is now; nil means that it is gone.
type SliceChanged struct {
	Name  string
	Slice *service.Slice
	Cause
}

// FactsChanged says that this node is not as it was. It carries nothing: several
// goroutines announce changes, and their announcements overtake each other. Whoever
// gets one reads the facts that are in force then.
type FactsChanged struct{}

// VerdictGiven is the answer to a fragment.
type VerdictGiven struct {
	dataplane.Verdict
}

func (SpecChanged) message()  {}
func (SliceChanged) message() {}
func (FactsChanged) message() {}
func (VerdictGiven) message() {}

// slot is the key of an actor's mailbox: one seat per thing that can be told
// about.
type slot struct {
	kind slotKind
	// name is the slice's or the domain's; empty for the other kinds.
	name string
}

type slotKind uint8

const (
	slotSpec slotKind = iota
	slotSlice
	slotFacts
	slotVerdict
)

// merge lets the newer message take the older one's seat; the earliest cause
// survives.
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

// or gives the earlier times of two causes.
func (c Cause) or(other Cause) Cause {
	return Cause{Trigger: dataplane.Earliest(c.Trigger, other.Trigger), Received: dataplane.Earliest(c.Received, other.Received)}
}

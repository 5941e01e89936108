// SPDX-License-Identifier: Apache-2.0

package actors

import (
	"context"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// Output is one domain as actors see it: how to render for it, and where the
// fragments go.
type Output struct {
	// Name is the domain's name, as acks carry it.
	Name     string
	Renderer dataplane.Renderer
	// Submit hands a fragment over; it does not block.
	Submit func(*dataplane.Fragment)
	// Submitted, if set, receives a Service's view before Submit receives the fragment
	// for it, so before any packet can follow the view. It does not block.
	Submitted func(context.Context, service.View)
	// Programmed, if set, receives each view of a Service once it is fully applied
	// in this domain. Views that were overtaken by newer ones are left out, and a
	// view may come again after a restart of the actor. A view without ports means
	// that the Service is no longer served. The node's own actor does not call it.
	// It does not block.
	Programmed func(context.Context, service.View)
	Family     service.Family
}

// Lease belongs to one incarnation of an actor; see supervisor.Lease.
type Lease interface {
	// Incarnation grows with each restart.
	Incarnation() uint64
	// Begin and End bracket the handling of the messages taken from the mailbox.
	Begin()
	End()
	// Fenced reports whether the actor was given up: its output no longer counts.
	Fenced() bool
	// Wake makes the supervisor call the body again, immediately if it rests. It does not block.
	Wake()
}

// Body is the work of one incarnation. It rests if it has nothing to do until Wake is called. If it does not rest, a
// nil error ends the actor, and after an error or a panic the supervisor starts another incarnation.
type Body func(ctx context.Context, lease Lease) (rests bool, err error)

// Starter keeps actors running. Neither method blocks.
type Starter interface {
	// Want starts an actor for a key and keeps it running.
	Want(key service.Key, body Body)
	// Nudge reports new input for an actor that may be parked, or is about to be.
	Nudge(key service.Key)
}

// StateReader is where actors read the current state. Both methods return immediately.
type StateReader interface {
	Snapshot(key service.Key) service.Snapshot
	Facts() *service.NodeFacts
}

// Event is something that happened in the directory or to an actor; one of the
// types in this file.
type Event interface{ event() }

// TooLarge reports that a Service is above the limit, so that some of its frontends are left out. An incarnation
// reports it again only after Fits.
type TooLarge struct {
	Key service.Key
	service.Excess
}

// Fits reports that a Service that was too large is small enough again, or is gone.
type Fits struct{ Key service.Key }

func (TooLarge) event() {}
func (Fits) event()     {}

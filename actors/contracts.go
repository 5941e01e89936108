package actors

import (
	"context"
	"time"

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
	// Drain, if set, lets endpoints of Family that leave a service port keep their
	// connections until none is left, or until service.View.Drain, by default DrainDeadline (15 min). UDP
	// flows last no longer than the endpoint serves; SCTP ends immediately. Meanwhile
	// the endpoints are in service.PortView.Draining of this domain's views, and
	// of no other's.
	Drain         Drainer
	Family        service.Family
	DrainDeadline time.Duration
}

// Drainer reports the connections in a domain's kernel. Many actors call it at the same time.
// Both methods may block for a moment and honour the context. Their cost must depend
// on the frontends of one service port, never on the number of Services.
//
// A frontend wants an endpoint if it sends new connections to it, by its traffic
// policy. Both methods are about the frontends that do not want an endpoint, and
// must leave out those that do.
type Drainer interface {
	// Busy reports whether an endpoint has connections left at frontends of a
	// service port that do not want it. The port is one of view's; the endpoint is
	// in its Draining.
	Busy(ctx context.Context, view *service.View, port *service.PortView,
		e service.Endpoint) (bool, error)
	// Held returns the endpoints that the kernel still has at frontends of a service
	// port that do not want them, in any order. Each incarnation asks once per port
	// before its first fragment, because only the kernel remembers what drains, and for
	// a while again after an error that matches context.DeadlineExceeded or
	// dataplane.ErrBusy. Endpoint.Local is ignored.
	Held(ctx context.Context, view *service.View, port *service.PortView) ([]service.Endpoint, error)
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
	// Wake has the body called again, immediately if it rests. It does not block.
	Wake()
}

// Body is the work of one incarnation. It rests when it has nothing to do until the
// lease's Wake. Otherwise nil ends the actor, and after an error or a panic the supervisor
// starts another incarnation.
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

// TooLarge reports that a Service asks for more objects in a domain than one may have.
// What it had before stays, in all domains, until it asks for less. An incarnation reports
// it once.
type TooLarge struct {
	Key          service.Key
	Domain       string
	Objects, Max int
}

// Fits reports that a Service that was too large no longer is, or is gone.
type Fits struct{ Key service.Key }

// Drains reports how many endpoints of a Service drain in a domain now. An
// incarnation reports each change of the number, starting from none.
type Drains struct {
	Key       service.Key
	Domain    string
	Family    service.Family
	Endpoints int
}

// DrainCut reports that endpoints stopped draining although they may have had
// connections left; those are cut.
type DrainCut struct {
	Key       service.Key
	Domain    string
	Endpoints []service.Endpoint
	// Deadline has passed, or, if it is 0, more than Bound endpoints of the Service
	// were draining.
	Deadline time.Duration
	Bound    int
}

// DrainUnknown reports that the kernel did not say whether an endpoint has
// connections left. The endpoint drains until its deadline. The event is not repeated
// until the kernel has answered again.
type DrainUnknown struct {
	Key      service.Key
	Domain   string
	Endpoint service.Endpoint
	Err      error
}

// HeldUnknown reports that an actor that started could not ask the kernel which
// endpoints were draining; their connections may be cut.
type HeldUnknown struct {
	Key    service.Key
	Domain string
	Err    error
}

func (TooLarge) event()     {}
func (Fits) event()         {}
func (Drains) event()       {}
func (DrainCut) event()     {}
func (DrainUnknown) event() {}
func (HeldUnknown) event()  {}

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
	// Name is the domain's, as verdicts carry it.
	Name     string
	Renderer dataplane.Renderer
	// Submit hands a fragment over; it does not block.
	Submit func(*dataplane.Fragment)
	// Programmed, when set, is told each view of a Service once it is wholly in
	// force in this domain, or was already; views that newer ones overtake are
	// left out, and one may come again after a restart of the actor. A view
	// without ports says that the Service is not served any more. It does not
	// block. Nobody is told about the node's own actor.
	Programmed func(service.View)
	// Drain, when set, lets endpoints of Family that leave a service port keep
	// the connections that they have: until none is left, or until
	// DrainDeadline, by default 15 min; for UDP, moreover, no longer than they
	// serve; for SCTP never. Meanwhile they are in
	// service.PortView.Draining of the views for this domain, and of no other.
	Drain         Drainer
	Family        service.Family
	DrainDeadline time.Duration
}

// Drainer knows the connections that a domain's kernel has. It is called by many
// actors at once. Both methods may block for a moment and honour the context; what
// they cost must depend on the frontends of one service port, never on the number
// of Services.
//
// A frontend wants an endpoint that is among the ones it sends new connections to,
// by its traffic policy. Both methods are about those that it does not want, and
// must leave out frontends that do want them.
type Drainer interface {
	// Busy tells whether connections are left to an endpoint, at frontends of
	// a service port that do not want it. The port is one of view's; the
	// endpoint is in its Draining.
	Busy(ctx context.Context, view *service.View, port *service.PortView, e service.Endpoint) (bool, error)
	// Held gives the endpoints that the kernel still has at frontends of a
	// service port that do not want them, in any order. Each actor asks once
	// for each port before its first fragment, after a restart again: what
	// drains is remembered by nobody but the kernel. Endpoint.Local is not
	// looked at.
	Held(ctx context.Context, view *service.View, port *service.PortView) ([]service.Endpoint, error)
}

// Lease is what a running actor holds from whoever keeps it alive.
type Lease interface {
	// Incarnation grows with each restart.
	Incarnation() uint64
	// Begin and End bracket the handling of what was taken from the mailbox.
	Begin()
	End()
	// Fenced tells that the actor was given up: nothing it says counts.
	Fenced() bool
}

// Body is the work of one incarnation: nil ends the actor, an error or a panic
// makes the keeper start another incarnation.
type Body func(ctx context.Context, lease Lease) error

// Keeper keeps actors alive. Neither method blocks.
type Keeper interface {
	// Want asks for someone to live at a key.
	Want(key service.Key, body Body)
	// Nudge tells that there is new input for someone who may have been given
	// up for now.
	Nudge(key service.Key)
}

// Truth is where an actor reads what is, when it starts from nothing. Both
// methods return at once.
type Truth interface {
	Snapshot(key service.Key) service.Snapshot
	Facts() *service.NodeFacts
}

package ipvs

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/ipvs/genl"
	"github.com/sluice-proxy/sluice/service"
)

// Drainer asks the kernel about connections, one frontend after the other. Until its
// domain's first write it asks about those alone that one list of virtual servers has,
// so that a node without any costs no questions; it lists nothing after that. It
// implements actors.Drainer of one family, and the dataplane.Renderer of the same
// domain: what frontends a service port has, and which endpoints they want, is for the
// renderer to say, and the node's addresses are among the facts that it is given. Both
// may be called concurrently.
type Drainer struct {
	*Renderer
	open func() (destinationSocket, error)
	// facts are those of the last Node. Learned is closed with the first.
	facts   atomic.Pointer[service.NodeFacts]
	learned chan struct{}
	first   sync.Once
	// turn holds one token while the socket is in use, which is nil after an answer
	// was lost on it.
	turn   chan struct{}
	socket destinationSocket
	// written is set with the first write. Found are the virtual servers that were
	// there before, nil until somebody asked; it belongs to whose turn it is.
	written atomic.Bool
	found   map[dataplane.Frontend]bool
}

// destinationSocket is what a Drainer needs of its connection to IPVS; see
// genl.Socket.
type destinationSocket interface {
	Services(ctx context.Context) ([]genl.Service, error)
	Destinations(ctx context.Context, f dataplane.Frontend) ([]genl.Destination, error)
	Close() error
}

var _ dataplane.Renderer = (*Drainer)(nil)

// NewDrainer makes one for a renderer. The function inside is that of Config; the
// socket is opened by the first question.
func NewDrainer(renderer *Renderer, inside func(func() error) error) *Drainer {
	if inside == nil {
		inside = func(f func() error) error { return f() }
	}
	return newDrainer(renderer, func() (destinationSocket, error) {
		var socket *genl.Socket
		err := inside(func() (err error) {
			socket, err = genl.Open()
			return err
		})
		return socket, err
	})
}

func newDrainer(renderer *Renderer, open func() (destinationSocket, error)) *Drainer {
	return &Drainer{Renderer: renderer, open: open, learned: make(chan struct{}), turn: make(chan struct{}, 1)}
}

// Close gives the socket up.
func (d *Drainer) Close() error {
	d.turn <- struct{}{}
	defer func() { <-d.turn }()
	if d.socket == nil {
		return nil
	}
	err := d.socket.Close()
	d.socket = nil
	return err
}

// Node renders the scaffold, and takes note of the facts.
func (d *Drainer) Node(facts *service.NodeFacts) []dataplane.Object {
	d.facts.Store(facts)
	d.first.Do(func() { close(d.learned) })
	return d.Renderer.Node(facts)
}

// Writing takes note that the domain writes from now on.
func (d *Drainer) Writing() { d.written.Store(true) }

// Busy tells whether connections are left to an endpoint, at frontends of a port that
// do not want it.
func (d *Drainer) Busy(ctx context.Context, view *service.View, port *service.PortView, e service.Endpoint) (bool, error) {
	busy := false
	err := d.each(ctx, view, port, func(found genl.Destination) {
		busy = busy || (found.Addr == e.AddrPort && found.ActiveConns+found.InactiveConns > 0)
	})
	return busy, err
}

// Held gives the endpoints that the kernel has at frontends of a port that do not want
// them, sorted, each once.
func (d *Drainer) Held(ctx context.Context, view *service.View, port *service.PortView) ([]service.Endpoint, error) {
	var held []service.Endpoint
	err := d.each(ctx, view, port, func(found genl.Destination) {
		held = append(held, service.Endpoint{AddrPort: found.Addr})
	})
	slices.SortFunc(held, service.Endpoint.Compare)
	return slices.Compact(held), err
}

// each gives the real servers that the frontends of a port have and do not want. It
// waits for the node's facts; what renders the scaffold never asks.
func (d *Drainer) each(ctx context.Context, view *service.View, port *service.PortView, give func(genl.Destination)) error {
	select {
	case <-d.learned:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	for _, s := range d.servers(view, port) {
		found, err := d.ask(ctx, s.Frontend)
		if err != nil {
			return err
		}
		for _, f := range found {
			if !slices.ContainsFunc(s.Reals, func(r Real) bool { return r.Addr == f.Addr && r.Weight > 0 }) {
				give(f)
			}
		}
	}
	return nil
}

// servers gives the virtual servers of one port as they are rendered.
func (d *Drainer) servers(view *service.View, port *service.PortView) []Server {
	alone := &service.View{Key: view.Key, Scheduling: view.Scheduling}
	alone.Ports[d.family] = []service.PortView{*port}
	var servers []Server
	for _, o := range d.Service(alone, d.facts.Load()) {
		if o.ID.Container != ContainerServer {
			continue
		}
		if s, err := ParseServer(&o); err == nil { // what was rendered can be read
			servers = append(servers, s)
		}
	}
	return servers
}

// ask asks about one frontend when it is this question's turn.
func (d *Drainer) ask(ctx context.Context, f dataplane.Frontend) ([]genl.Destination, error) {
	select {
	case d.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	defer func() { <-d.turn }()
	if d.socket == nil {
		socket, err := d.open()
		if err != nil {
			return nil, err
		}
		d.socket = socket
	}
	found, err := d.destinations(ctx, f)
	if errors.Is(err, genl.ErrUnanswered) {
		_ = d.socket.Close() // it is given up because it is of no use
		d.socket = nil
	}
	return found, err
}

// destinations asks about one frontend, unless it cannot be there.
func (d *Drainer) destinations(ctx context.Context, f dataplane.Frontend) ([]genl.Destination, error) {
	if there, err := d.mayHave(ctx, f); err != nil || !there {
		return nil, err
	}
	return d.socket.Destinations(ctx, f)
}

// mayHave tells whether the kernel may have a virtual server.
func (d *Drainer) mayHave(ctx context.Context, f dataplane.Frontend) (bool, error) {
	if d.written.Load() {
		d.found = nil
		return true, nil
	}
	if d.found == nil {
		services, err := d.socket.Services(ctx)
		if err != nil {
			return false, err
		}
		d.found = make(map[dataplane.Frontend]bool, len(services))
		for _, s := range services {
			d.found[s.Frontend] = true
		}
	}
	return d.found[f], nil
}

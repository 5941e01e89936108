package kernel

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/ipvs/render"
	"github.com/sluice-proxy/sluice/dataplane/ipvs/wire"
	"github.com/sluice-proxy/sluice/service"
)

// Drainer asks the kernel about connections, one frontend after the other. It implements
// actors.Drainer of one family, and the dataplane.Renderer of the same domain: the
// renderer decides which frontends a service port has and which endpoints they want, and
// receives the node's addresses with the facts.
//
// Until its domain's first write it asks only about the virtual servers that one list
// contains, so that a node without any costs no questions. After that it lists nothing.
// Both may be called concurrently.
type Drainer struct {
	*render.Renderer
	open func() (destinationReader, error)
	// facts are those of the last Node. learned is closed with the first.
	facts   atomic.Pointer[service.NodeFacts]
	learned chan struct{}
	first   sync.Once
	// turn holds one token while the reader is in use, which is nil after an answer was
	// lost on it.
	turn   chan struct{}
	reader destinationReader
	// written is set with the first write. found are the virtual servers that existed
	// before, nil until they are listed. Only the holder of the token uses it.
	written atomic.Bool
	found   map[service.Frontend]bool
}

// destinationReader is what a Drainer needs of its connection to IPVS; see
// wire.Servers.
type destinationReader interface {
	Services(ctx context.Context) ([]wire.Service, error)
	Destinations(ctx context.Context, f service.Frontend) ([]wire.Destination, error)
	Close() error
}

var _ dataplane.Renderer = (*Drainer)(nil)

// NewDrainer makes a drainer for a renderer. Inside is that of Config. The first question
// opens the connection.
func NewDrainer(renderer *render.Renderer, inside func(func() error) error) *Drainer {
	if inside == nil {
		inside = func(f func() error) error { return f() }
	}
	return newDrainer(renderer, func() (destinationReader, error) {
		var servers *wire.Servers
		err := inside(func() (err error) {
			servers, err = wire.OpenServers()
			return err
		})
		return servers, err
	})
}

func newDrainer(renderer *render.Renderer, open func() (destinationReader, error)) *Drainer {
	return &Drainer{Renderer: renderer, open: open, learned: make(chan struct{}), turn: make(chan struct{}, 1)}
}

// Close closes the connection.
func (d *Drainer) Close() error {
	d.turn <- struct{}{}
	defer func() { <-d.turn }()
	if d.reader == nil {
		return nil
	}
	err := d.reader.Close()
	d.reader = nil
	return err
}

// Node renders the scaffold and keeps the facts.
func (d *Drainer) Node(facts *service.NodeFacts) []dataplane.Object {
	d.facts.Store(facts)
	d.first.Do(func() { close(d.learned) })
	return d.Renderer.Node(facts)
}

// Writing notes that the domain writes from now on.
func (d *Drainer) Writing() { d.written.Store(true) }

// Busy reports whether an endpoint has connections left at frontends of a port that do not
// want it.
func (d *Drainer) Busy(
	ctx context.Context, view *service.View, port *service.PortView, e service.Endpoint,
) (bool, error) {
	busy := false
	err := d.each(ctx, view, port, func(found wire.Destination) {
		busy = busy || (found.Addr == e.AddrPort && found.ActiveConns+found.InactiveConns > 0)
	})
	return busy, err
}

// Held returns the endpoints that the kernel has at frontends of a port that do not want
// them, sorted, each once.
func (d *Drainer) Held(
	ctx context.Context, view *service.View, port *service.PortView,
) ([]service.Endpoint, error) {
	var held []service.Endpoint
	err := d.each(ctx, view, port, func(found wire.Destination) {
		held = append(held, service.Endpoint{AddrPort: found.Addr})
	})
	slices.SortFunc(held, service.Endpoint.Compare)
	return slices.Compact(held), err
}

// each calls yield with the real servers that the frontends of a port have and do not
// want. It waits for the node's facts. The node's own actor, which brings them, never asks.
func (d *Drainer) each(
	ctx context.Context, view *service.View, port *service.PortView, yield func(wire.Destination),
) error {
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
			wanted := func(r wire.Real) bool { return r.Addr == f.Addr && r.Weight > 0 }
			if !slices.ContainsFunc(s.Reals, wanted) {
				yield(f)
			}
		}
	}
	return nil
}

// servers returns the virtual servers of one port as they are rendered.
func (d *Drainer) servers(view *service.View, port *service.PortView) []render.Server {
	alone := &service.View{Key: view.Key, Scheduling: view.Scheduling, Balancing: view.Balancing}
	alone.Ports[d.Family()] = []service.PortView{*port}
	var servers []render.Server
	for _, o := range d.Service(context.Background(), alone, d.facts.Load()) {
		if o.ID.Container != render.ContainerServer {
			continue
		}
		if s, err := render.ParseServer(&o); err == nil { // what was rendered can be read
			servers = append(servers, s)
		}
	}
	return servers
}

// ask asks about one frontend, unless it cannot exist, when it is this question's turn. The
// error matches dataplane.ErrBusy if there may be an answer later.
func (d *Drainer) ask(ctx context.Context, f service.Frontend) (found []wire.Destination, err error) {
	select {
	case d.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	defer func() { <-d.turn }()
	defer func() {
		if wire.Unknown(err) || isBusy(err) {
			err = fmt.Errorf("%w: %w", dataplane.ErrBusy, err)
		}
	}()
	if d.reader == nil {
		reader, err := d.open()
		if err != nil {
			return nil, err
		}
		d.reader = reader
	}
	exists, err := d.mayExist(ctx, f)
	if err == nil && exists {
		found, err = d.reader.Destinations(ctx, f)
	}
	if wire.Unknown(err) {
		_ = d.reader.Close() // it is of no more use
		d.reader = nil
	}
	return found, err
}

// mayExist reports whether the kernel may have a virtual server.
func (d *Drainer) mayExist(ctx context.Context, f service.Frontend) (bool, error) {
	if d.written.Load() {
		d.found = nil
		return true, nil
	}
	if d.found == nil {
		services, err := d.reader.Services(ctx)
		if err != nil {
			return false, err
		}
		d.found = make(map[service.Frontend]bool, len(services))
		for _, s := range services {
			d.found[s.Frontend] = true
		}
	}
	return d.found[f], nil
}

// Package userspace is the backend that serves Services without netfilter: this process accepts
// their connections and forwards them. It renders Services as local addresses and listeners, writes
// and reads them, and cleans up. It owns the routes with its protocol number, the listeners and
// their connections. internal/daemon/backend builds two domains per family from it.
//
//	client ──► 10.0.0.1:80 ──────────────────► this process ──► 10.244.1.10:8080
//	           a local route     listener       Table, balancer    an endpoint
//
// The reasons and the drawbacks are in docs/adr/0038-userspace.md.
//
// When a listener changes:
//
//   - an endpoint leaves: it gets no new connections. Open TCP connections end at a deadline, UDP
//     sessions move with the client's next datagram;
//   - the listener goes: new clients are refused at once. Connections end at the same deadline;
//   - the process ends: everything ends, and the routes stay, so that clients are refused.
package userspace

import (
	"net/netip"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/relay"
	"github.com/sluice-proxy/sluice/service"
)

// Config tunes a Forwarder. Zero values mean the defaults.
type Config struct {
	// Relay is passed on. Its bounds and places are not used: those of the registry hold.
	Relay relay.Config
	// Registry is shared with the other forwarders of the process. Default: one of its own.
	Registry *Registry
	// DrainDeadline is how long connections to an endpoint that has left stay open. Default
	// 15 min.
	DrainDeadline time.Duration
}

// Forwarder has the listeners of one part of one family with their connections and sessions. It
// outlives the writers that change it, one after the other.
type Forwarder struct {
	part          Part
	family        service.Family
	relay         *relay.Relay
	registry      *Registry
	drainDeadline time.Duration
	// held are the listeners that were opened and not removed. One that has died stays here until
	// it is written again.
	held map[dataplane.ID]*listener
	// ready is set once a batch with the node's own object was written.
	ready bool
	// died holds a token while no writer has reported that a listener has died.
	died chan struct{}
}

// listener is one listener with what it does.
type listener struct {
	*relay.Listener
	balancer *balancer
	// slot is that of the listener in its Service's part of all listeners.
	slot relay.Slot
	// body is what the table was parsed from.
	body string
}

const drainDeadlineDefault = 15 * time.Minute

// NewForwarder returns a forwarder. Close ends what it has started.
func NewForwarder(part Part, family service.Family, config Config) *Forwarder {
	if config.DrainDeadline <= 0 {
		config.DrainDeadline = drainDeadlineDefault
	}
	if config.Registry == nil {
		config.Registry = NewRegistry(Bounds{}, nil)
	}
	config.Relay.Places = &config.Registry.places
	return &Forwarder{
		part: part, family: family, relay: relay.New(config.Relay), registry: config.Registry, drainDeadline: config.DrainDeadline,
		held: make(map[dataplane.ID]*listener), died: make(chan struct{}, 1),
	}
}

// Close ends all listeners, connections and sessions and waits for their end.
func (f *Forwarder) Close() { f.relay.Close() }

// Each calls visit with each open listener. Any goroutine may call it.
func (f *Forwarder) Each(visit func(*relay.Listener)) { f.relay.Each(visit) }

// Stats returns the forwarder's numbers.
func (f *Forwarder) Stats() *relay.Stats { return f.relay.Stats() }

// object returns the open listener of an identity as an object, or the node's own, nil if there is
// none.
func (f *Forwarder) object(id dataplane.ID) *dataplane.Object {
	if id == readyID && f.ready {
		o := readyObject()
		return &o
	}
	l := f.held[id]
	if l == nil || !l.Alive() {
		return nil
	}
	return &dataplane.Object{ID: id, Kind: dataplane.Element, Body: l.body}
}

// balancer returns a new one for a listener.
func (f *Forwarder) balancer(p relay.Place, t *Table) *balancer {
	run := func(work func()) { f.relay.Go(p.String(), work) }
	return newBalancer(f.registry, t.id(p), t, p.Protocol, f.drainDeadline, run)
}

// open opens a listener that does not serve yet.
func (f *Forwarder) open(p relay.Place, t *Table, body string) (*listener, error) {
	l := &listener{balancer: f.balancer(p, t), body: body}
	if err := f.takeSlot(l, p); err != nil {
		l.balancer.retire()
		return nil, err
	}
	program := t.filter()
	opened, err := f.relay.Open(p, relay.Options{Balancer: l.balancer, Control: func(fd uintptr) error {
		if err := freebind(fd, p.At.Addr()); err != nil {
			return err
		}
		return attach(fd, program)
	}})
	if err != nil {
		l.slot.Give()
		l.balancer.retire()
		return nil, err
	}
	l.Listener = opened
	return l, nil
}

// takeSlot takes a slot for a listener. One that has died there leaves its own.
func (f *Forwarder) takeSlot(l *listener, p relay.Place) error {
	if dead := f.held[listenerID(p)]; dead != nil {
		dead.slot.Give()
	}
	of := l.balancer.port.share.listeners
	if why, ok := of.Take(&l.slot, netip.Addr{}); !ok {
		return &boundError{why, of.Met(netip.Addr{}).Most}
	}
	return nil
}

// change replaces the table of a listener, first in the balancer, which also checks the source.
func (f *Forwarder) change(l *listener, t *Table, body string) error {
	f.switchTable(l, t)
	var failed error
	err := l.Control(func(fd uintptr) { failed = attach(fd, t.filter()) })
	if err == nil {
		err = failed
	}
	if err == nil {
		l.body = body
	}
	return err
}

// switchTable gives the balancer another table, or, for another Service port, the listener another
// balancer.
func (f *Forwarder) switchTable(l *listener, t *Table) {
	if l.balancer.port.id == t.id(l.Place()) {
		l.balancer.use(t)
		return
	}
	former := l.balancer
	l.balancer = f.balancer(l.Place(), t)
	l.slot.Move(l.balancer.port.share.listeners)
	l.Use(l.balancer)
	former.retire()
}

// retire ends a listener. Its connections drain.
func (l *listener) retire() {
	l.Close()
	l.slot.Give()
	l.balancer.retire()
}

// start serves the clients of a listener.
func (f *Forwarder) start(l *listener) {
	l.Start(func() {
		select {
		case f.died <- struct{}{}:
		default: // no writer has taken the former token yet
		}
	})
}

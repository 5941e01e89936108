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
//   - the listener goes: new clients are refused immediately. Connections end at the same deadline;
//   - the process ends: everything ends, and the routes stay, so that clients are refused.
package userspace

import (
	"net/netip"
	"time"

	"github.com/sluice-proxy/sluice/dataplane/listeners"
	"github.com/sluice-proxy/sluice/dataplane/relay"
	"github.com/sluice-proxy/sluice/service"
)

// Config tunes a Forwarder. Zero values mean the defaults.
type Config struct {
	// Relay is passed on. Its bounds and places are not used: those of the registry hold.
	Relay relay.Config
	// Registry is shared with the other forwarders of the process. Default: a separate one.
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
	listeners     *listeners.Set[*Table]
	// ready is set once a batch with the node's own object was written.
	ready bool
}

// listener is one listener with what it does.
type listener struct {
	*relay.Listener
	forwarder *Forwarder
	balancer  *balancer
	// slot is that of the listener in its Service's part of all listeners.
	slot relay.Slot
}

const drainDeadlineDefault = 15 * time.Minute

// NewForwarder returns a forwarder. Close ends what it has started.
func NewForwarder(part Part, family service.Family, config Config) *Forwarder {
	if config.DrainDeadline <= 0 {
		config.DrainDeadline = drainDeadlineDefault
	}
	if config.Registry == nil {
		config.Registry = NewRegistry(Bounds{})
	}
	config.Relay.Places = &config.Registry.places
	f := &Forwarder{
		part: part, family: family, relay: relay.New(config.Relay), registry: config.Registry, drainDeadline: config.DrainDeadline,
	}
	f.listeners = listeners.New(f.relay, func(_ relay.Place, body string) (*Table, error) { return parseTable(body) },
		func(p relay.Place, t *Table) (listeners.Listener[*Table], error) { return f.open(p, t) })
	return f
}

// Close ends all listeners, connections and sessions and waits for their end.
func (f *Forwarder) Close() { f.relay.Close() }

// Each calls visit with each open listener. Any goroutine may call it.
func (f *Forwarder) Each(visit func(*relay.Listener)) { f.relay.Each(visit) }

// Stats returns the forwarder's numbers.
func (f *Forwarder) Stats() *relay.Stats { return f.relay.Stats() }

// balancer returns a new one for a listener.
func (f *Forwarder) balancer(p relay.Place, t *Table) *balancer {
	run := func(work func()) { f.relay.Go(p.String(), work) }
	return newBalancer(f.registry, t.id(p), t, p.Protocol, f.drainDeadline, run)
}

// open opens a listener that does not serve yet.
func (f *Forwarder) open(p relay.Place, t *Table) (*listener, error) {
	l := &listener{forwarder: f, balancer: f.balancer(p, t)}
	if err := l.takeSlot(); err != nil {
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
		l.slot.Release()
		l.balancer.retire()
		return nil, err
	}
	l.Listener = opened
	return l, nil
}

func (l *listener) takeSlot() error {
	of := l.balancer.port.share.listeners
	if why, ok := of.Acquire(&l.slot, netip.Addr{}); !ok {
		return &boundError{why, of.Met(netip.Addr{}).Most}
	}
	return nil
}

// Start serves the clients of the listener. A dead listener frees its slot.
func (l *listener) Start(died func()) {
	l.Listener.Start(func() {
		l.slot.Release()
		died()
	})
}

// Change replaces the table, first in the balancer, which also checks the source.
func (l *listener) Change(t *Table) error {
	l.switchTable(t)
	var failed error
	if err := l.Control(func(fd uintptr) { failed = attach(fd, t.filter()) }); err != nil {
		return err
	}
	return failed
}

// switchTable gives the balancer another table, or, for another Service port, the listener another
// balancer.
func (l *listener) switchTable(t *Table) {
	former := l.balancer
	if former.port.id == t.id(l.Place()) {
		former.use(t)
		return
	}
	l.balancer = l.forwarder.balancer(l.Place(), t)
	l.slot.Move(l.balancer.port.share.listeners)
	l.Use(l.balancer)
	former.retire()
}

// Retire ends a listener. Its connections drain.
func (l *listener) Retire() {
	l.Close()
	l.slot.Release()
	l.balancer.retire()
}

// SPDX-License-Identifier: Apache-2.0

// Package userspace is the backend that serves Services without netfilter: this process accepts their
// connections and forwards them. It renders Services as local addresses and listeners, writes, reads
// and removes them. It owns the routes with Sluice's protocol number, the listeners and their
// connections. internal/daemon/backend builds two domains per family from it.
//
//	client ──► 10.0.0.1:80 ──────────────────► this process ──► 10.244.1.10:8080
//	           a local route     listener       Table, balancer    an endpoint
//
// docs/adr/0038-userspace.md describes the reasons and the drawbacks.
//
// When a listener changes:
//
//   - an endpoint is removed: it gets no new connections. Open TCP connections end at a deadline; a UDP
//     session moves to another endpoint with the client's next datagram;
//   - the listener is removed: the host refuses new clients immediately. Connections end at the same deadline;
//   - the process ends: everything ends, but the routes stay, so that the host refuses clients.
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
	// Relay configures the relay. Its limits and Places have no effect, because the registry has them.
	Relay relay.Config
	// Registry is shared with the other forwarders of the process. Default: a separate one.
	Registry *Registry
	// DrainDeadline is how long connections to a removed endpoint stay open, unless the Service has its own
	// limit. Default 15 min.
	DrainDeadline time.Duration
}

// Forwarder has the listeners of one Part in one family, with their connections and sessions. It
// outlives its writers, of which only one exists at a time.
type Forwarder struct {
	part          Part
	family        service.Family
	relay         *relay.Relay
	registry      *Registry
	drainDeadline time.Duration
	listeners     *listeners.Set[*Table]
	// ready is set once a batch with the object readyID was written.
	ready bool
}

// listener is a listener with its balancer and its slot.
type listener struct {
	*relay.Listener
	forwarder *Forwarder
	balancer  *balancer
	// slot counts the listener against the listener limit of its Service.
	slot relay.Slot
}

const drainDeadlineDefault = 15 * time.Minute

// NewForwarder returns a forwarder, which runs until Close.
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

// balancer returns a new balancer for a listener.
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

// Change replaces the table, first in the balancer, which checks the source too, and then in the filter.
func (l *listener) Change(t *Table) error {
	l.switchTable(t)
	var failed error
	if err := l.Control(func(fd uintptr) { failed = attach(fd, t.filter()) }); err != nil {
		return err
	}
	return failed
}

// switchTable gives the balancer a new table. If the table belongs to another Service port, it gives
// the listener a new balancer.
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

package userspace

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/sluice-proxy/sluice/service"
)

const (
	// triesMax is how many endpoints a client's connection is tried at.
	triesMax = 3
	// failuresMax in a row make an endpoint the last to try, for avoidFor.
	failuresMax = 2
	avoidFor    = 10 * time.Second
	// clientsMax bounds the clients that a listener remembers for affinity.
	clientsMax = 1 << 16
)

// balancer chooses the endpoints of one listener's clients, and lets connections drain. It
// implements relay.Balancer. The lock guards its fields, never a call.
type balancer struct {
	protocol      service.Protocol
	drainDeadline time.Duration
	// run does work that may block in another goroutine, whose end the forwarder waits for.
	run func(work func())

	mu    sync.Mutex
	table *Table
	// next counts the clients without affinity to anything.
	next uint
	// clients are those with affinity.
	clients map[netip.Addr]sticky
	// open and failed hold what is known of endpoints, as long as there is something to know.
	open   map[netip.AddrPort]*users
	failed map[netip.AddrPort]failing
}

// sticky is where a client goes, and until when.
type sticky struct {
	to    netip.AddrPort
	until time.Time
}

// users are the connections and sessions of an endpoint.
type users struct {
	cuts map[*func()]struct{}
	// deadline cuts them; nil unless the endpoint drains.
	deadline *time.Timer
}

// failing is an endpoint that has not accepted connections.
type failing struct {
	times int
	until time.Time
}

func newBalancer(protocol service.Protocol, t *Table, drainDeadline time.Duration, run func(func())) *balancer {
	return &balancer{
		protocol: protocol, drainDeadline: drainDeadline, run: run, table: t, next: rand.Uint(), clients: make(map[netip.Addr]sticky),
		open: make(map[netip.AddrPort]*users), failed: make(map[netip.AddrPort]failing),
	}
}

// use replaces the table. Endpoints that have left drain; those that are back do not.
func (b *balancer) use(t *Table) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.table = t
	for endpoint, u := range b.open {
		switch gone := !t.has(endpoint); {
		case gone && u.deadline == nil:
			u.deadline = time.AfterFunc(b.drainDeadline, func() { b.run(func() { b.cut(u) }) })
		case !gone && u.deadline != nil:
			u.deadline.Stop()
			u.deadline = nil
		}
	}
	for endpoint := range b.failed {
		if !t.has(endpoint) {
			delete(b.failed, endpoint)
		}
	}
	if t.Affinity == 0 {
		clear(b.clients)
	}
}

// cut ends the connections of an endpoint that still drains.
func (b *balancer) cut(u *users) {
	b.mu.Lock()
	var cuts []func()
	if u.deadline != nil {
		for c := range u.cuts {
			cuts = append(cuts, *c)
		}
	}
	b.mu.Unlock()
	for _, cut := range cuts {
		cut()
	}
}

// Targets implements relay.Balancer.
func (b *balancer) Targets(client netip.Addr) []netip.AddrPort {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := b.table.targets(client)
	if len(all) == 0 {
		return nil
	}
	now := time.Now()
	chosen := make([]netip.AddrPort, 0, triesMax)
	if at, ok := b.affinity(client, now); ok && slices.Contains(all, at) && !b.avoided(at, now) {
		chosen = append(chosen, at)
	}
	first := int(b.next % uint(len(all)))
	if len(chosen) == 0 {
		b.next++
	}
	// Endpoints to avoid are a second choice, but a choice.
	for _, avoided := range [...]bool{false, true} {
		for i := 0; i < len(all) && len(chosen) < triesMax; i++ {
			endpoint := all[(first+i)%len(all)]
			if b.avoided(endpoint, now) == avoided && !slices.Contains(chosen, endpoint) {
				chosen = append(chosen, endpoint)
			}
		}
	}
	return chosen
}

// affinity returns the endpoint that a client had last.
func (b *balancer) affinity(client netip.Addr, now time.Time) (netip.AddrPort, bool) {
	if b.table.Affinity == 0 {
		return netip.AddrPort{}, false
	}
	s, known := b.clients[client]
	return s.to, known && now.Before(s.until)
}

func (b *balancer) avoided(endpoint netip.AddrPort, now time.Time) bool {
	if len(b.failed) == 0 {
		return false
	}
	f := b.failed[endpoint]
	return f.times >= failuresMax && now.Before(f.until)
}

// Keeps implements relay.Balancer.
func (b *balancer) Keeps(client netip.Addr, target netip.AddrPort) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.table.keeps(client, target)
}

// Connected implements relay.Balancer.
func (b *balancer) Connected(client netip.Addr, target netip.AddrPort, cut func()) (ended func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.protocol == service.TCP { // a UDP session has not been answered yet
		delete(b.failed, target)
	}
	if b.table.Affinity > 0 {
		b.remember(client, target)
	}
	u := b.open[target]
	if u == nil {
		u = &users{cuts: make(map[*func()]struct{})}
		b.open[target] = u
		if !b.table.has(target) { // it has left meanwhile
			u.deadline = time.AfterFunc(b.drainDeadline, func() { b.run(func() { b.cut(u) }) })
		}
	}
	u.cuts[&cut] = struct{}{}
	return func() { b.ended(target, &cut) }
}

func (b *balancer) ended(target netip.AddrPort, cut *func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	u := b.open[target]
	delete(u.cuts, cut)
	if len(u.cuts) > 0 {
		return
	}
	if u.deadline != nil {
		u.deadline.Stop()
	}
	delete(b.open, target)
}

// remember notes a client's endpoint. At the bound, those whose time is over go, and for want of
// such, any one.
func (b *balancer) remember(client netip.Addr, target netip.AddrPort) {
	now := time.Now()
	if _, known := b.clients[client]; !known && len(b.clients) >= clientsMax {
		for c, s := range b.clients {
			if !now.Before(s.until) {
				delete(b.clients, c)
			}
		}
		for c := range b.clients {
			if len(b.clients) < clientsMax {
				break
			}
			delete(b.clients, c)
		}
	}
	b.clients[client] = sticky{target, now.Add(time.Duration(b.table.Affinity) * time.Second)}
}

// Failed implements relay.Balancer.
func (b *balancer) Failed(target netip.AddrPort) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.table.has(target) {
		return
	}
	now := time.Now()
	f := b.failed[target]
	if now.After(f.until) {
		f.times = 0
	}
	b.failed[target] = failing{f.times + 1, now.Add(avoidFor)}
}

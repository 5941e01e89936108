// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"errors"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/sluice-proxy/sluice/dataplane/relay"
	"github.com/sluice-proxy/sluice/dataplane/slots"
	"github.com/sluice-proxy/sluice/service"
)

const (
	// triesMax is how many endpoints are tried for one connection.
	triesMax = 3
	// After failuresMax failures in a row, an endpoint is tried last, for avoidFor.
	failuresMax = 2
	avoidFor    = 10 * time.Second
)

// balancer chooses endpoints for the clients of one listener and Service port, and lets connections
// drain. It implements [relay.Balancer]. The lock guards its fields; no call that can block is made
// under it.
type balancer struct {
	registry      *Registry
	port          *port
	protocol      service.Protocol
	drainDeadline time.Duration
	// run runs work that may block in another goroutine. The forwarder's Close waits for its end.
	run func(work func())

	mu    sync.Mutex
	table *Table
	// roles are those of the table. They are set only for UDP, which looks them up for each datagram.
	roles map[netip.AddrPort]roles
	// turns are indexes of the table's endpoints in the order of their turns, or by hash slot: turns[0] of To, turns[1]
	// of NearTo. If nil, each endpoint has one turn.
	turns [2][]int
	// next is the turn at which the search for an endpoint begins, if neither affinity nor a hash chooses.
	next uint
	// known are the endpoints that had a client of this listener, as long as they are in the table or
	// have connections; failing are those of them with recent failures.
	known   map[netip.AddrPort]*served
	failing map[netip.AddrPort]failing
	// retired is set once the listener no longer uses the balancer, and released once the port was released.
	retired, released bool
}

// served is an endpoint with its connections and sessions of this listener.
type served struct {
	*endpoint
	cuts map[*relay.Connection]struct{}
	// gone is set while the endpoint is not in the table.
	gone bool
	// deadline cuts the connections; nil unless the endpoint drains, which began at left.
	deadline *time.Timer
	left     time.Time
}

// failing counts an endpoint's failures in a row, which are forgotten after until.
type failing struct {
	times int
	until time.Time
}

func newBalancer(registry *Registry, id PortID, t *Table, protocol service.Protocol, drainDeadline time.Duration, run func(func())) *balancer {
	b := &balancer{
		registry: registry, port: registry.hold(id), protocol: protocol, drainDeadline: drainDeadline, run: run,
		next: rand.Uint(), known: make(map[netip.AddrPort]*served), failing: make(map[netip.AddrPort]failing),
	}
	b.use(t)
	return b
}

// use replaces the table. One goroutine calls it. Removed endpoints drain; endpoints that are back stop draining.
func (b *balancer) use(t *Table) {
	b.mu.Lock()
	former, turns := b.table, b.turns
	b.mu.Unlock()
	if former == nil || !former.sharesAlike(t) {
		turns = [2][]int{t.turns(t.To), t.turns(t.NearTo)} // takes a while for many endpoints
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.turns = turns
	b.turnTo(t)
}

func (b *balancer) turnTo(t *Table) {
	another := b.table != nil && b.table.Drain != t.Drain
	b.table = t
	has := t.roles()
	if b.protocol == service.UDP {
		b.roles = has
	}
	for at, k := range b.known {
		if k.gone = has[at]&(inTo|inNearTo) == 0; k.gone {
			b.leave(k)
			if another && k.deadline != nil {
				k.deadline.Reset(time.Until(k.left.Add(b.limit())))
			}
		} else if k.deadline != nil {
			k.deadline.Stop()
			k.deadline = nil
		}
	}
	for at := range b.failing {
		if has[at]&(inTo|inNearTo) == 0 {
			delete(b.failing, at)
		}
	}
	if t.Affinity == 0 && !b.retired {
		b.port.forget()
	}
}

// retire lets all connections drain, because the listener was removed or serves another Service port.
func (b *balancer) retire() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.retired = true
	b.turnTo(&Table{Drain: b.table.Drain})
	b.settle()
}

// leave lets the connections of an endpoint that is not in the table drain, and forgets the endpoint
// if it has none.
func (b *balancer) leave(k *served) {
	switch {
	case len(k.cuts) == 0:
		if k.deadline != nil {
			k.deadline.Stop()
		}
		delete(b.known, k.at)
		k.release()
		b.settle()
	case k.deadline == nil:
		k.left = time.Now()
		k.deadline = time.AfterFunc(b.limit(), func() { b.run(func() { b.cut(k) }) })
	}
}

// limit returns how long connections drain.
func (b *balancer) limit() time.Duration { return b.table.Drain.Or(b.drainDeadline) }

// settle releases the port once the balancer is retired and knows no endpoint.
func (b *balancer) settle() {
	if b.retired && !b.released && len(b.known) == 0 {
		b.released = true
		b.registry.release(b.port)
	}
}

// cut ends the connections of an endpoint that still drains.
func (b *balancer) cut(k *served) {
	b.mu.Lock()
	var cuts []func()
	if k.deadline != nil {
		for c := range k.cuts {
			cuts = append(cuts, c.Cut)
		}
	}
	b.mu.Unlock()
	for _, cut := range cuts {
		cut()
	}
}

// Targets returns the endpoints to try: with affinity first the client's last one, then by a hash of the client, by
// round robin or by load.
func (b *balancer) Targets(from netip.AddrPort) []netip.AddrPort {
	b.mu.Lock()
	defer b.mu.Unlock()
	client := from.Addr()
	all, role := b.table.side(client)
	if len(all) == 0 {
		return nil
	}
	turns := turns{all, b.turns[role/inNearTo]}
	now := time.Now()
	chosen := make([]netip.AddrPort, 0, triesMax)
	if b.table.Affinity > 0 {
		if at, ok := b.port.affinity(client, now); ok && slices.Contains(all, at) && !b.avoided(at, now) {
			chosen = append(chosen, at)
		}
	}
	first := int(b.next % uint(turns.len()))
	hashes := b.table.By.Hashes()
	if hashes {
		if b.table.By == service.SourceHash {
			from = netip.AddrPortFrom(client, 0)
		}
		first = slots.Slot(from, turns.len(), b.table.Seed)
	}
	var loads []uint64
	if b.table.LeastConnections && b.table.By == service.Random {
		loads = b.port.loads(all)
	}
	// Endpoints to avoid are still tried, after the others.
	for _, avoided := range [...]bool{false, true} {
		fits := func(at netip.AddrPort) bool { return b.avoided(at, now) == avoided && !slices.Contains(chosen, at) }
		for len(chosen) < triesMax {
			i := pick(turns, loads, first, fits)
			if i < 0 {
				break
			}
			if len(chosen) == 0 && !hashes {
				b.next = uint(i) + 1
			}
			chosen = append(chosen, turns.at(i))
		}
	}
	return chosen
}

// turns are endpoints and the order of their turns, as indexes; nil for the order of the endpoints.
type turns struct {
	endpoints []netip.AddrPort
	order     []int
}

func (t turns) len() int {
	if t.order == nil {
		return len(t.endpoints)
	}
	return len(t.order)
}

// endpoint returns the index of the endpoint that has turn i.
func (t turns) endpoint(i int) int {
	if t.order == nil {
		return i
	}
	return t.order[i]
}

func (t turns) at(i int) netip.AddrPort { return t.endpoints[t.endpoint(i)] }

// pick returns the next turn, beginning at first: that of the first endpoint that fits or, with loads, that of the
// fitting endpoint with the least load. If none fits it returns a negative number.
func pick(all turns, loads []uint64, first int, fits func(netip.AddrPort) bool) int {
	best := -1
	for i := range all.len() {
		n := (first + i) % all.len()
		if best >= 0 && loads[all.endpoint(n)] >= loads[all.endpoint(best)] || !fits(all.at(n)) {
			continue
		}
		if best = n; loads == nil {
			break
		}
	}
	return best
}

func (b *balancer) avoided(at netip.AddrPort, now time.Time) bool {
	if len(b.failing) == 0 {
		return false
	}
	f := b.failing[at]
	return f.times >= failuresMax && now.Before(f.until)
}

// Preface returns the header of the PROXY protocol, if the Service has it enabled.
func (b *balancer) Preface(client, at netip.AddrPort) []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.table.ProxyProtocol {
		return nil
	}
	return proxyHeader(client, at)
}

// Keeps reports whether the endpoint still serves the client.
func (b *balancer) Keeps(client netip.Addr, target netip.AddrPort) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	all, role := b.table.side(client)
	return len(all) > 0 && b.roles[target]&(role|inKept) != 0
}

// know returns an endpoint from known, and adds it if it is not there.
func (b *balancer) know(at netip.AddrPort) *served {
	k := b.known[at]
	if k == nil {
		k = &served{endpoint: b.port.hold(at), cuts: make(map[*relay.Connection]struct{}), gone: !b.table.has(at)}
		b.known[at] = k
	}
	return k
}

// Connected counts a connection, and remembers its client.
func (b *balancer) Connected(c *relay.Connection) (ended func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.protocol == service.TCP { // a UDP session has not been answered yet
		delete(b.failing, c.Target)
	}
	k := b.know(c.Target)
	k.opened(c.Client.Addr(), time.Duration(b.table.Affinity)*time.Second)
	k.cuts[c] = struct{}{}
	if k.gone { // the endpoint was removed after Targets chose it
		b.leave(k)
	}
	c.Also = &k.bytes
	o := b.registry.opened(c, b.port.id)
	return func() { b.ended(k, o) }
}

func (b *balancer) ended(k *served, o *Open) {
	b.registry.ended(o)
	b.registry.done(&Done{Port: o.Port, Client: o.Client, At: o.Place.At, Connection: o.Connection})
	b.mu.Lock()
	defer b.mu.Unlock()
	k.ended()
	delete(k.cuts, o.Connection)
	if k.gone {
		b.leave(k)
	}
}

// Failed counts the failure. After failuresMax in a row, the endpoint is tried last for avoidFor.
func (b *balancer) Failed(target netip.AddrPort, err error, again bool) {
	if denied, ok := errors.AsType[*relay.DeniedError](err); ok {
		b.registry.denied(b.port, denied)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.table.has(target) {
		return
	}
	b.know(target).failed(again)
	now := time.Now()
	f := b.failing[target]
	if now.After(f.until) {
		f.times = 0
	}
	b.failing[target] = failing{f.times + 1, now.Add(avoidFor)}
}

// Budget returns the budget of the Service.
func (b *balancer) Budget() *relay.Budget { return b.port.share.budget(b.protocol) }

// Refused counts a rejected client, and reports the limit that the client reached.
func (b *balancer) Refused(client, at netip.AddrPort, why relay.Refusal) {
	b.port.refuse(why)
	if why != relay.Replaced { // the end of a replaced session calls done
		b.registry.done(&Done{Port: b.port.id, Client: client, At: at, Refused: why})
	}
	switch why {
	case relay.ClientFull, relay.PartFull, relay.TotalFull, relay.Replaced:
		b.registry.atBound(b.port, b.protocol, client.Addr())
	default: // no limit was reached
	}
}

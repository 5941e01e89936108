// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"net/netip"
	"sync"
	"time"

	"github.com/sluice-proxy/sluice/dataplane/relay"
	"github.com/sluice-proxy/sluice/dataplane/traffic"
)

// port is the state that the listeners of one Service port share. Any goroutine may use it. The lock
// guards only its fields.
type port struct {
	id PortID
	// share is the share of its Service.
	share *share
	// holders counts calls of Registry.hold; the registry's lock guards it.
	holders int

	mu sync.Mutex
	// clients are those with affinity.
	clients affinity
	// endpoints are those that some listener's balancer holds, because they had a client.
	endpoints map[netip.AddrPort]*endpoint
	// former is the sum of the endpoints that are no longer held, and of all refused clients.
	former traffic.Tally
}

// endpoint is one endpoint of a Service port. The lock of the port guards its fields.
type endpoint struct {
	port    *port
	at      netip.AddrPort
	holders int
	tally   traffic.Tally
	bytes   relay.Bytes
}

// Reasons translates the relay's reasons to those that all modes report.
var Reasons = [relay.Refusals]traffic.Reason{
	relay.ClientFull: traffic.Limit, relay.PartFull: traffic.Limit, relay.TotalFull: traffic.Limit, relay.Replaced: traffic.Limit,
	relay.Unreachable: traffic.Unreachable, relay.NoTarget: traffic.NoEndpoints,
}

func newPort(id PortID, of *share) *port {
	return &port{id: id, share: of, endpoints: make(map[netip.AddrPort]*endpoint)}
}

// hold returns an endpoint. It exists until release is called as often as hold.
func (p *port) hold(at netip.AddrPort) *endpoint {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.endpoints[at]
	if e == nil {
		e = &endpoint{port: p, at: at}
		p.endpoints[at] = e
	}
	e.holders++
	return e
}

func (e *endpoint) release() {
	e.port.mu.Lock()
	defer e.port.mu.Unlock()
	if e.holders--; e.holders == 0 {
		e.port.former = e.port.former.Plus(e.now())
		delete(e.port.endpoints, e.at)
	}
}

// now returns the tally with the bytes. The caller holds the lock.
func (e *endpoint) now() traffic.Tally {
	t := e.tally
	t.BytesIn, t.BytesOut = e.bytes.ToTargets.Load(), e.bytes.ToClients.Load()
	return t
}

// opened counts a connection of a client. If remember is positive, the port remembers the client that long.
func (e *endpoint) opened(client netip.Addr, remember time.Duration) {
	e.port.mu.Lock()
	defer e.port.mu.Unlock()
	e.tally.Open++
	e.tally.Connections++
	if remember > 0 {
		e.port.clients.remember(client, e.at, time.Now().Add(remember))
	}
}

func (e *endpoint) ended() {
	e.port.mu.Lock()
	defer e.port.mu.Unlock()
	e.tally.Open--
}

func (e *endpoint) failed(again bool) {
	e.port.mu.Lock()
	defer e.port.mu.Unlock()
	e.tally.Failures++
	if again {
		e.tally.Retries++
	}
}

func (p *port) refuse(why relay.Refusal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.former.Refused[Reasons[why]]++
}

// affinity returns the endpoint that a client had last.
func (p *port) affinity(client netip.Addr, now time.Time) (netip.AddrPort, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.clients.of(client, now)
}

// forget ends the affinity of all clients.
func (p *port) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clients.clear()
}

// loads returns the numbers of open connections of endpoints.
func (p *port) loads(endpoints []netip.AddrPort) []uint64 {
	loads := make([]uint64, len(endpoints))
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, at := range endpoints {
		if e := p.endpoints[at]; e != nil {
			loads[i] = e.tally.Open
		}
	}
	return loads
}

// addTo adds the port's numbers to those of its Service. Ports may share an endpoint.
func (p *port) addTo(to *traffic.ServiceTally) {
	p.mu.Lock()
	defer p.mu.Unlock()
	to.Tally = to.Plus(p.former)
	for at, e := range p.endpoints {
		now := e.now()
		to.Tally, to.Endpoints[at] = to.Plus(now), to.Endpoints[at].Plus(now)
	}
}

// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"fmt"
	"math"
	"net/netip"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane/relay"
	"github.com/sluice-proxy/sluice/service"
)

// Bounds are the limits of the process: over all forwarders, frontends and families.
type Bounds struct {
	// Connections (TCP) and Sessions (UDP) limit how many there may be in total. One Service may have
	// a quarter of each. Default: 65,536 (boundMax).
	Connections, Sessions int
	// ConnectionsPerClient is how many connections, and how many sessions, one client address may
	// have over all Services; see relay.Limits. Default: 1/64 of the limit of the process, but at
	// least 256, and at most as many as one Service may have.
	ConnectionsPerClient int
	// Listeners limits how many there may be; the writer rejects further ones. One Service may have a
	// quarter of them. Default: no limit.
	Listeners int
	// Full is called when a client reaches a limit: at most once a minute for the limits of each Service, once
	// for those of the process, and once for those of clients. It must not block. Default: none.
	Full func(Full)
	// Denied is called when an endpoint of a Service must not be dialed (relay.Config.MayDial), at most
	// once a minute for each Service. It must not block. Default: none.
	Denied func(PortID, *relay.DeniedError)
}

// Full describes the limit that a client reached.
type Full struct {
	Port PortID
	// Client is the client's address.
	Client netip.Addr
	// Why is relay.ClientFull, PartFull for the limit of the Service, or TotalFull for that of the
	// process. Of the Most connections or sessions that it allows, Open are open.
	Why        relay.Refusal
	Open, Most int
}

const (
	// boundMax is the highest limit for the connections, and for the sessions, of a process.
	boundMax = 1 << 16
	// One Service may have 1/partOf of the connections, sessions and listeners, so that others are
	// served while it is at its limit.
	partOf = 4
	// One client may have 1/clientPartOf of the connections and sessions, but at least clientMin.
	clientPartOf, clientMin = 64, 256
	// perConnection is how many descriptors a connection takes: two sockets, and two pipes to
	// splice through.
	perConnection = 6
	// sayPause is the shortest time between two calls of Full about one bound, or of Denied.
	sayPause = time.Minute
)

// BoundsFor returns limits that fit the process's limit of file descriptors: half of them for connections and
// sessions, if each takes as many as it can, and three quarters for listeners. The last quarter is enough for idle
// connections and the rest of the process.
func BoundsFor(full func(Full)) (Bounds, error) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return Bounds{}, fmt.Errorf("descriptors of this process: %w", err)
	}
	return boundsFor(limit.Cur, full), nil
}

func boundsFor(descriptors uint64, full func(Full)) Bounds {
	half := descriptors / 2
	return Bounds{
		Connections: int(max(min(half*3/4/perConnection, boundMax), partOf)),
		Sessions:    int(max(min(half/4, boundMax), partOf)),
		Listeners:   int(max(min(descriptors, 1<<30)*3/4, 1)),
		Full:        full,
	}
}

// total has the limits of a process. Only the limit per client and the counts change.
type total struct {
	connections, sessions, listeners *relay.Pool
	bounds                           Bounds
	// said is for reports on the limits of the process, and saidClients on those of clients.
	said, saidClients saying
}

func newTotal(b Bounds) *total {
	if b.Connections <= 0 {
		b.Connections = boundMax
	}
	if b.Sessions <= 0 {
		b.Sessions = boundMax
	}
	if b.Full == nil {
		b.Full = func(Full) {}
	}
	if b.Denied == nil {
		b.Denied = func(PortID, *relay.DeniedError) {}
	}
	if b.Listeners <= 0 {
		b.Listeners = math.MaxInt
	}
	pool := func(most int) *relay.Pool {
		return relay.NewPool(relay.Limits{Total: most, PerBudget: partFor(most)})
	}
	t := &total{connections: pool(b.Connections), sessions: pool(b.Sessions), listeners: pool(b.Listeners), bounds: b}
	t.LimitClients(b.ConnectionsPerClient)
	return t
}

// partFor returns how many of a process's connections, sessions or listeners one Service may have.
func partFor(most int) int { return max(most/partOf, 1) }

// LimitClients changes how many connections, and sessions, one client may have; 0 means the
// default. Those that are open stay.
func (t *total) LimitClients(most int) {
	for _, pool := range []*relay.Pool{t.connections, t.sessions} {
		if most > 0 {
			pool.LimitClients(most)
		} else {
			pool.LimitClients(min(max(pool.Most()/clientPartOf, clientMin), partFor(pool.Most())))
		}
	}
}

// ConnectionsPerClient returns how many connections one client may have.
func (t *total) ConnectionsPerClient() int { return t.connections.PerClient() }

// share counts what one Service uses of a process's limits, over its frontends, ports and families.
type share struct {
	connections, sessions, listeners *relay.Budget
	said, saidDenied                 saying
	// ports belong to the registry.
	ports map[PortID]*port
}

func (t *total) newShare() *share {
	return &share{
		connections: t.connections.Budget(), sessions: t.sessions.Budget(), listeners: t.listeners.Budget(),
		ports: make(map[PortID]*port),
	}
}

func (s *share) budget(p service.Protocol) *relay.Budget {
	if p == service.UDP {
		return s.sessions
	}
	return s.connections
}

// atBound calls Full with the limit that a client of a port reached, unless it did so within sayPause.
func (t *total) atBound(p *port, protocol service.Protocol, client netip.Addr) {
	met := p.share.budget(protocol).Met(client)
	said := &t.said
	switch met.Why {
	case relay.PartFull:
		said = &p.share.said
	case relay.ClientFull:
		said = &t.saidClients
	default: // the limit of the process
	}
	if said.now() {
		t.bounds.Full(Full{Port: p.id, Client: client, Why: met.Why, Open: met.Open, Most: met.Most})
	}
}

// denied calls Denied with an endpoint that must not be dialed, unless it did so within sayPause.
func (t *total) denied(p *port, err *relay.DeniedError) {
	if p.share.saidDenied.now() {
		t.bounds.Denied(p.id, err)
	}
}

// saying has the time of the last report, in nanoseconds of the system's clock. Any goroutine may
// use it; the zero value is ready.
type saying struct{ last atomic.Int64 }

// now returns whether to report again, and notes the time if so.
func (s *saying) now() bool {
	now, last := time.Now().UnixNano(), s.last.Load()
	return (last == 0 || now-last >= int64(sayPause)) && s.last.CompareAndSwap(last, now)
}

// boundError means that the process, or one Service, has as many listeners as its limit allows.
type boundError struct {
	why  relay.Refusal
	most int
}

// Error describes the limit and how to raise it.
func (e *boundError) Error() string {
	if e.why == relay.PartFull {
		return fmt.Sprintf("listener limit of one Service reached (%d): reduce its addresses or ports, "+
			"or raise the file-descriptor limit (LimitNOFILE)", e.most)
	}
	return fmt.Sprintf("listener limit reached (%d): raise the file-descriptor limit (LimitNOFILE)", e.most)
}

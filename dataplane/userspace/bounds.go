package userspace

import (
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane/relay"
	"github.com/sluice-proxy/sluice/service"
)

// Bounds are those of the process: over all forwarders, frontends and families.
type Bounds struct {
	// Connections (TCP) and Sessions (UDP) are how many there may be together. One Service may have
	// a part of each. Defaults: the most that a process with enough descriptors may have.
	Connections, Sessions int
	// Listeners are how many there may be; a further one is refused. Default: no bound.
	Listeners int
	// Full is called when a client meets a bound: once a minute for the bound of one Service, and
	// once for those of the process. It must not block. Default: none.
	Full func(Full)
}

// Full says which bound a client has met.
type Full struct {
	Port PortID
	// Total says that it is the bound of the process and not of the Service. There are Open of
	// Most connections or sessions under it.
	Total      bool
	Open, Most int
}

const (
	// boundMax is the most connections, and sessions, that a process may have.
	boundMax = 1 << 16
	// partOf is the part of them that one Service may have, so that others are served while it is
	// at its bound.
	partOf = 4
	// perConnection is how many descriptors a connection takes: two sockets, and two pipes to
	// splice through.
	perConnection = 6
	// fullPause is the shortest time between two calls of Full about one bound.
	fullPause = time.Minute
)

// BoundsFor returns the bounds that suit the descriptors that the process may have: half of them for
// connections and sessions, if each takes all it may, and three quarters for listeners, which leaves
// enough for idle connections and the rest of the process.
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

// total has the bounds of a process. It is immutable but for the numbers.
type total struct {
	connections, sessions, listeners *relay.Budget
	full                             func(Full)
	said                             saying
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
	if b.Listeners <= 0 {
		b.Listeners = math.MaxInt
	}
	return &total{
		connections: relay.NewBudget(b.Connections, nil), sessions: relay.NewBudget(b.Sessions, nil),
		listeners: relay.NewBudget(b.Listeners, nil), full: b.Full,
	}
}

// share is what one Service has of a process: the sum over its frontends, ports and families.
type share struct {
	connections, sessions *relay.Budget
	said                  saying
	// ports belong to the registry.
	ports map[PortID]*port
}

func (t *total) newShare() *share {
	part := func(of *relay.Budget) *relay.Budget { return relay.NewBudget(max(of.Most()/partOf, 1), of) }
	return &share{connections: part(t.connections), sessions: part(t.sessions), ports: make(map[PortID]*port)}
}

func (s *share) budget(p service.Protocol) *relay.Budget {
	if p == service.UDP {
		return s.sessions
	}
	return s.connections
}

// atBound says that a client of a port has met a bound, unless that was said lately.
func (t *total) atBound(p *port, protocol service.Protocol) {
	of, said := p.share.budget(protocol), &p.share.said
	whole := of.Used() < of.Most()
	if whole {
		of, said = t.connections, &t.said
		if protocol == service.UDP {
			of = t.sessions
		}
	}
	if said.now() {
		t.full(Full{Port: p.id, Total: whole, Open: of.Used(), Most: of.Most()})
	}
}

// saying is when something was said last, in nanoseconds of the system's clock. Any goroutine may
// use it; the zero value is ready.
type saying struct{ last atomic.Int64 }

// now reports whether to say it again, and notes that it was said.
func (s *saying) now() bool {
	now, last := time.Now().UnixNano(), s.last.Load()
	return (last == 0 || now-last >= int64(fullPause)) && s.last.CompareAndSwap(last, now)
}

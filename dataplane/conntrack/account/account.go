// SPDX-License-Identifier: Apache-2.0

package account

import (
	"hash/maphash"
	"net/netip"
	"time"

	"github.com/sluice-proxy/sluice/dataplane/conntrack"
	"github.com/sluice-proxy/sluice/dataplane/traffic"
	"github.com/sluice-proxy/sluice/service"
)

const (
	// rememberedMax is the maximum number of connections whose counters are retained, with about 128 bytes each. It is
	// the kernel's default limit of connections.
	rememberedMax = 1 << 18
	// serviceSlots and nodeSlots are the numbers of slots for clients of one Service, and of the node.
	serviceSlots, nodeSlots = 32, 256
	// endpointKept is the time for which an endpoint without connections keeps its totals.
	endpointKept = time.Hour
)

// account adds up connections, from one reading of the table to the next. If readings are continuous, it adds the
// traffic of each connection since the previous reading to totals that only grow. It misses the traffic of a connection
// between the last reading and the end of the connection.
type account struct {
	TrafficConfig
	// most is rememberedMax, except in tests.
	most int
	seed maphash.Seed
	// round numbers the readings.
	round uint32
	// last contains the counters of connections at the last reading.
	last            map[uint64]remembered
	services        map[service.Key]*serviceAccount
	since, previous time.Time
}

// remembered are the counters of a connection at a reading.
type remembered struct {
	carried traffic.Counts
	round   uint32
}

// serviceAccount is the account of one Service. The sketches are of one reading.
type serviceAccount struct {
	all                    traffic.Carried
	endpoints              map[netip.AddrPort]endpointAccount
	byConnections, byBytes *traffic.Sketch[netip.Addr]
	// now is the traffic of the connections of this reading since the last reading.
	now traffic.Carried
}

type endpointAccount struct {
	traffic.Carried
	seen time.Time
}

func newAccount(config TrafficConfig) *account {
	return &account{
		TrafficConfig: config, most: rememberedMax, seed: maphash.MakeSeed(),
		last: map[uint64]remembered{}, services: map[service.Key]*serviceAccount{},
	}
}

// reading is one reading in progress.
type reading struct {
	*account
	flows   *traffic.Flows
	clients *traffic.Sketch[netip.Addr]
}

// begin starts a reading, and removes the totals of deleted Services.
func (a *account) begin(now time.Time) *reading {
	a.round++
	if !a.Continuous {
		clear(a.services)
	}
	for key, s := range a.services {
		if !a.Exists(key) {
			delete(a.services, key)
			continue
		}
		s.reset(now)
	}
	return &reading{a, &traffic.Flows{Began: now}, traffic.NewSketch[netip.Addr](nodeSlots)}
}

// reset clears everything except the totals.
func (s *serviceAccount) reset(now time.Time) {
	s.all.Open, s.all.Closed, s.now = 0, 0, traffic.Carried{}
	s.byConnections, s.byBytes = traffic.NewSketch[netip.Addr](serviceSlots), traffic.NewSketch[netip.Addr](serviceSlots)
	for at, e := range s.endpoints {
		if e.Open, e.Closed = 0, 0; now.Sub(e.seen) > endpointKept {
			delete(s.endpoints, at)
			continue
		}
		s.endpoints[at] = e
	}
}

// add adds one connection.
func (r *reading) add(family service.Family, c *conntrack.Connection) {
	r.flows.Entries++
	r.clients.Add(c.From.Addr(), 1, traffic.Carried{Open: 1})
	if !c.Translated() {
		return
	}
	key, ok := r.Service(family, c.Tuple())
	if !ok {
		return
	}
	s := r.services[key]
	if s == nil {
		s = &serviceAccount{endpoints: map[netip.AddrPort]endpointAccount{}}
		s.reset(r.flows.Began)
		r.services[key] = s
	}
	carried := traffic.Carried{Open: 1, Counts: r.carried(family, c)}
	if c.Closed() {
		carried.Open, carried.Closed = 0, 1
	}
	s.all, s.now = s.all.Plus(carried), s.now.Plus(carried)
	s.endpoints[c.Answerer] = endpointAccount{s.endpoints[c.Answerer].Plus(carried), r.flows.Began}
	s.byConnections.Add(c.From.Addr(), 1, carried)
	s.byBytes.Add(c.From.Addr(), carried.Bytes(), carried)
}

// carried returns the traffic of a connection since the last reading. In the first reading, it returns zero.
func (r *reading) carried(family service.Family, c *conntrack.Connection) (grown traffic.Counts) {
	if !r.Continuous || !c.Accounted {
		return grown
	}
	key := maphash.Comparable(r.seed, struct {
		number   uint32
		family   service.Family
		protocol uint8
		from, to netip.AddrPort
	}{c.Number, family, c.Protocol, c.From, c.To})
	before, known := r.last[key]
	if !known && len(r.last) >= r.most {
		r.flows.Forgotten++
		return grown
	}
	r.last[key] = remembered{c.Carried, r.round}
	if r.since.IsZero() {
		return grown
	}
	return minus(c.Carried, before.carried)
}

// minus returns the growth of counters.
func minus(now, before traffic.Counts) traffic.Counts {
	return traffic.Counts{
		PacketsIn: grown(before.PacketsIn, now.PacketsIn), PacketsOut: grown(before.PacketsOut, now.PacketsOut),
		BytesIn: grown(before.BytesIn, now.BytesIn), BytesOut: grown(before.BytesOut, now.BytesOut),
	}
}

// end completes a reading, and returns its result.
func (r *reading) end(now time.Time) *traffic.Flows {
	f := r.flows
	f.Ended, f.Clients = now, r.clients.Top(traffic.ClientsMax)
	f.Services = make(map[service.Key]traffic.ServiceFlows, len(r.services))
	for key, s := range r.services {
		f.Services[key] = s.flows()
		s.byConnections, s.byBytes = nil, nil
	}
	if !r.Continuous {
		return f
	}
	for key, of := range r.last {
		if of.round != r.round {
			delete(r.last, key)
		}
	}
	if r.since.IsZero() {
		r.since = now
	}
	f.Since, f.Previous = r.since, r.previous
	r.previous = now
	return f
}

// flows returns a copy.
func (s *serviceAccount) flows() traffic.ServiceFlows {
	f := traffic.ServiceFlows{
		Carried: s.all, Endpoints: make(map[netip.AddrPort]traffic.Carried, len(s.endpoints)),
		ByConnections: s.byConnections.Top(traffic.ClientsMax), ByBytes: s.byBytes.Top(traffic.ClientsMax), Others: s.now,
	}
	for at, e := range s.endpoints {
		f.Endpoints[at] = e.Carried
	}
	for _, c := range f.ByConnections {
		f.Others.Open, f.Others.Closed = f.Others.Open-c.Seen.Open, f.Others.Closed-c.Seen.Closed
		f.Others.Counts = minus(f.Others.Counts, c.Seen.Counts)
	}
	return f
}

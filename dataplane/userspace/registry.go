// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/sluice-proxy/sluice/dataplane/relay"
	"github.com/sluice-proxy/sluice/dataplane/traffic"
	"github.com/sluice-proxy/sluice/service"
)

// Registry is the state that the forwarders of a process share: the ports of each Service, with the
// numbers of all their frontends, and the open connections. Any goroutine may use it. The lock guards
// only its fields.
type Registry struct {
	mu       sync.Mutex
	services map[service.Key]*share
	// watch is called for ended connections and refused clients; see Watch.
	watch atomic.Pointer[func(*Done)]
	*total
	// places are the addresses on which the forwarders listen.
	places relay.Places
	// open has the open connections and sessions; last is the highest number given to one. It is
	// divided into shards, so that Connections blocks a new connection only while it reads one shard.
	open [shards]struct {
		mu       sync.Mutex
		byNumber map[uint64]*Open
	}
	last atomic.Uint64
}

// shards is large enough that a shard has about 2,048 entries at the highest limits of a process.
const shards = 64

// PortID identifies a Service port in one family. The zero value is for a listener that belongs to no Service.
type PortID struct {
	Service  service.Key
	Name     string
	Protocol service.Protocol
	Family   service.Family
}

// Open is a connection or session that is open.
type Open struct {
	*relay.Connection
	// Number grows with each connection of the process.
	Number uint64
	Port   PortID
}

// Done is an ended connection or session, or a refused client.
type Done struct {
	Port PortID
	// Client and At are the addresses of the client and of the listener.
	Client, At netip.AddrPort
	// Connection is nil for a refused client; Refused is the reason.
	*relay.Connection
	Refused relay.Refusal
}

// Watch makes the registry call a function for each ended connection and each refused client. If each is nil, the
// registry stops calling. The function must not block.
func (r *Registry) Watch(each func(*Done)) {
	if each == nil {
		r.watch.Store(nil)
		return
	}
	r.watch.Store(&each)
}

func (r *Registry) done(d *Done) {
	if each := r.watch.Load(); each != nil {
		(*each)(d)
	}
}

// NewRegistry returns a registry.
func NewRegistry(bounds Bounds) *Registry {
	r := &Registry{services: make(map[service.Key]*share), total: newTotal(bounds)}
	for i := range r.open {
		r.open[i].byNumber = make(map[uint64]*Open)
	}
	return r
}

// hold returns the state of a Service port. It exists until release is called as often as hold.
func (r *Registry) hold(id PortID) *port {
	if id == (PortID{}) {
		return newPort(id, r.newShare())
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	of := r.services[id.Service]
	if of == nil {
		of = r.newShare()
		r.services[id.Service] = of
	}
	p := of.ports[id]
	if p == nil {
		p = newPort(id, of)
		of.ports[id] = p
	}
	p.holders++
	return p
}

func (r *Registry) release(p *port) {
	if p.id == (PortID{}) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if p.holders--; p.holders > 0 {
		return
	}
	delete(p.share.ports, p.id)
	if len(p.share.ports) == 0 {
		delete(r.services, p.id.Service)
	}
}

// opened notes a connection.
func (r *Registry) opened(c *relay.Connection, port PortID) *Open {
	o := &Open{c, r.last.Add(1), port}
	s := &r.open[o.Number%shards]
	s.mu.Lock()
	defer s.mu.Unlock()
	s.byNumber[o.Number] = o
	return o
}

func (r *Registry) ended(o *Open) {
	s := &r.open[o.Number%shards]
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.byNumber, o.Number)
}

// Connections returns the wanted open connections and sessions with numbers greater than above, in
// order, but at most most of them. More is set if there are others. A nil registry has none.
func (r *Registry) Connections(above uint64, most int, wanted func(*Open) bool) (found []*Open, more bool) {
	if r == nil {
		return nil, false
	}
	var all []*Open
	for i := range r.open {
		s := &r.open[i]
		s.mu.Lock()
		for number, o := range s.byNumber {
			if number > above {
				all = append(all, o)
			}
		}
		s.mu.Unlock()
	}
	all = slices.DeleteFunc(all, func(o *Open) bool { return !wanted(o) })
	slices.SortFunc(all, func(a, b *Open) int { return cmp.Compare(a.Number, b.Number) })
	return all[:min(len(all), most)], len(all) > most
}

// Traffic returns the traffic of a Service, counted since it has listeners; nil for a family without
// listeners. A nil registry has none.
func (r *Registry) Traffic(of service.Key) (all service.PerFamily[*traffic.ServiceTally]) {
	if r == nil {
		return all
	}
	var ports []*port
	r.mu.Lock()
	if s := r.services[of]; s != nil {
		ports = slices.Collect(maps.Values(s.ports))
	}
	r.mu.Unlock()
	for _, p := range ports {
		to := &all[p.id.Family]
		if *to == nil {
			*to = &traffic.ServiceTally{HasBytes: true, Endpoints: make(map[netip.AddrPort]traffic.Tally)}
		}
		p.addTo(*to)
	}
	return all
}

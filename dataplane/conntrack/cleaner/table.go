// SPDX-License-Identifier: Apache-2.0

package cleaner

import (
	"context"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/service"
)

// table holds what is applied in one family and what remains to be cleaned. It is pure
// and belongs to one family cleaner.
//
// Invariant: frontends holds exactly the claims of the pictures in services.
type table struct {
	// services has the Services with UDP ports.
	services  map[service.Key][]port
	frontends map[frontend][]claim
	// pending are the frontends that changed since they were last cleaned, each with the
	// last Service that changed it.
	pending map[frontend]service.Key
	// openings has the destinations of each Service, of all protocols, and checks those that
	// are new or open to others since they were last looked at.
	openings map[service.Key]destinations
	checks   map[destination]check
	// claims counts the Services that have a destination.
	claims map[destination]int
	// astray are the destinations at which flows of clients that met no rule were found since the last complete sweep, each
	// with its Service. See again.
	astray map[destination]service.Key
	drains *drains
	// steps counts what was visited. With it, tests prove that the cost of a picture is linear.
	steps int
}

// claim is a Service's claim on a frontend. There is nearly always exactly one.
type claim struct {
	by      service.Key
	serving []netip.AddrPort
}

func newTable() *table {
	return &table{
		services:  map[service.Key][]port{},
		frontends: map[frontend][]claim{},
		pending:   map[frontend]service.Key{},
		openings:  map[service.Key]destinations{},
		checks:    map[destination]check{},
		claims:    map[destination]int{},
		astray:    map[destination]service.Key{},
		drains:    newDrains(),
	}
}

// waiting counts what a sweep has to look at.
func (t *table) waiting() int { return len(t.pending) + len(t.checks) + len(t.drains.looks) }

// put stores what a Service is now. All frontends that it had and has become pending, even
// if nothing differs: between two equal pictures, another one may have been applied
// briefly.
func (t *table) put(key service.Key, p flowPicture) {
	t.putOpenings(key, &p)
	for _, f := range p.overtaken {
		t.pending[f] = key
	}
	for _, old := range t.services[key] {
		for _, f := range old.frontends {
			t.withdraw(f, key)
		}
	}
	for _, port := range p.ports {
		for _, f := range port.frontends {
			t.frontends[f] = append(t.frontends[f], claim{by: key, serving: port.serving})
			t.pending[f] = key
		}
	}
	if len(p.ports) == 0 {
		delete(t.services, key)
		return
	}
	t.services[key] = p.ports
}

func (t *table) withdraw(f frontend, key service.Key) {
	t.pending[f] = key
	left := slices.DeleteFunc(t.frontends[f], func(c claim) bool { return c.by == key })
	if len(left) == 0 {
		delete(t.frontends, f)
		return
	}
	t.frontends[f] = left
}

// doubt makes every frontend and destination applied pending: rules were missing, so that
// any may have stale flows.
func (t *table) doubt() {
	for f, claims := range t.frontends {
		if _, pending := t.pending[f]; !pending {
			t.pending[f] = claims[0].by
		}
	}
	for key, of := range t.openings {
		for _, o := range of.openings {
			t.check(key, o, &of)
		}
	}
}

// stray notes a flow of a client that met no rule, or of answers to one.
func (t *table) stray(f *flow, by service.Key) {
	for _, d := range [...]destination{f.Destination(), f.Source()} {
		if t.claims[d] > 0 && d.Port != 0 {
			t.astray[d] = by
		}
	}
}

// recheck makes a destination pending once more, unless the Service has given it up.
func (t *table) recheck(d destination, by service.Key) {
	of := t.openings[by]
	o, has := of.at(d)
	if !has {
		return
	}
	t.check(by, o, &of)
	if f := netip.AddrPortFrom(d.Addr, d.Port); d.Protocol == unix.IPPROTO_UDP && len(t.frontends[f]) > 0 {
		t.pending[f] = by
	}
}

// judge reports whether a UDP flow of a pending frontend is stale, and whose change made it
// so. Node ports answer on the addresses for which onNode is true.
//
// A frontend with its own address takes precedence over a node port with the same
// number, as in the kernel's rules.
func (t *table) judge(f *flow, onNode func(netip.Addr) bool) (by service.Key, stale bool) {
	by, pending := t.pending[f.To]
	claims := t.frontends[f.To]
	if len(claims) == 0 {
		number := nodePort(f.To.Port())
		whose, numberPending := t.pending[number]
		if (pending || numberPending) && onNode(f.To.Addr()) {
			claims = t.frontends[number]
			if !pending {
				by, pending = whose, true
			}
		}
	}
	return by, pending && isStale(f, claims)
}

// isStale judges a flow through a frontend with these claims, possibly none.
//
//   - A flow to a serving endpoint stays, whatever happens to the others.
//   - If something serves, any other flow is stale, whether it leads to an endpoint that left
//     or to none: its next packet finds a serving one.
//   - If nothing serves, or no Service has the frontend any more, a translated flow is stale, so
//     that the present rules apply to its client. No Service ever led a flow without translation
//     anywhere.
//
// On a loopback address, a flow without translation leads to a process of this host,
// which may be the proxy itself (package localport).
func isStale(f *flow, claims []claim) bool {
	served := false
	for i := range claims {
		if holds(claims[i].serving, f.Answerer) {
			return false
		}
		served = served || len(claims[i].serving) > 0
	}
	return f.Translated() || served && !f.To.Addr().IsLoopback()
}

// holds reports whether an endpoint is among sorted others.
func holds(endpoints []netip.AddrPort, e netip.AddrPort) bool {
	_, found := slices.BinarySearchFunc(endpoints, e, netip.AddrPort.Compare)
	return found
}

// A frontend is where clients send to: an address and port, or the port alone for a node
// port.
type frontend = netip.AddrPort

// nodePort returns the frontend of a node port, regardless of its addresses.
func nodePort(port uint16) frontend { return netip.AddrPortFrom(netip.Addr{}, port) }

// port is one UDP port of a Service. All its frontends lead to the same endpoints.
type port struct {
	frontends []frontend
	// serving are the endpoints to which flows may continue, sorted by address, then port.
	serving []netip.AddrPort
}

// flowPicture is what matters of one Service in one family. It is immutable.
type flowPicture struct {
	ports []port
	// overtaken are frontends of earlier pictures that the family cleaner has not seen. They were
	// applied briefly and may have flows.
	overtaken []frontend
	// openings are the destinations of all protocols. The guarded ones are open to the
	// allowed sources. reopened is set if an earlier picture that the family cleaner has not seen
	// had others.
	// openings are sorted.
	openings []opening
	// denied are those of destinations.
	allowed, denied []netip.Prefix
	reopened        bool
	// drain is nil without a drain deadline.
	drain *drainPicture
	// repaired asks for a sweep of all frontends; see Cleaner.Repaired.
	repaired bool
	// steps counts what was visited to make the picture; see table.
	steps int
}

// newPicture reduces a view to a picture. If the context ends, the picture is incomplete.
func newPicture(ctx context.Context, family service.Family, view *service.View) flowPicture {
	var p flowPicture
	p.openings = p.openingsOf(ctx, view.Ports[family])
	for i := range view.Ports[family] {
		if ctx.Err() != nil {
			return p
		}
		from := &view.Ports[family][i]
		if from.Protocol == service.UDP {
			p.ports = append(p.ports, port{
				frontends: p.frontendsOf(from), serving: sorted(from.Serving),
			})
		}
	}
	if len(view.Ports[family]) > 0 {
		p.allowed, p.denied = view.Ports[family][0].AllowedSources(), view.Ports[family][0].DenyRanges
	}
	return p
}

// frontendsOf returns the frontends of a port, sorted, each once.
func (p *flowPicture) frontendsOf(view *service.PortView) []frontend {
	var all []frontend
	for e := range view.Exposures {
		all = append(all, netip.AddrPortFrom(e.Addr, e.Port))
	}
	return p.unique(all)
}

// unique sorts frontends and leaves each once.
func (p *flowPicture) unique(all []frontend) []frontend {
	slices.SortFunc(all, func(a, b frontend) int {
		p.steps++
		return a.Compare(b)
	})
	return slices.Compact(all)
}

func sorted(endpoints []service.Endpoint) []netip.AddrPort {
	if len(endpoints) == 0 {
		return nil
	}
	all := make([]netip.AddrPort, len(endpoints))
	for i, e := range endpoints {
		all[i] = e.AddrPort
	}
	slices.SortFunc(all, netip.AddrPort.Compare)
	return all
}

// newer lets a picture replace one that the family cleaner has not seen yet.
func newer(older, newer flowPicture) flowPicture {
	merged := newer
	merged.repaired = older.repaired || newer.repaired
	merged.reopened = older.reopened || !slices.Equal(older.openings, newer.openings)
	merged.drain = newer.drain.overtaking(older.drain)
	merged.overtaken = slices.Clone(older.overtaken)
	for _, p := range older.ports {
		merged.overtaken = append(merged.overtaken, p.frontends...)
	}
	merged.overtaken = merged.unique(merged.overtaken)
	return merged
}

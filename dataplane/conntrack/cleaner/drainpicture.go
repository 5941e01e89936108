// SPDX-License-Identifier: Apache-2.0

package cleaner

import (
	"cmp"
	"context"
	"net/netip"
	"slices"
	"time"

	"github.com/sluice-proxy/sluice/service"
)

// drainPicture is what matters of a Service with a drain deadline in one family.
type drainPicture struct {
	after time.Duration
	// ports are sorted by their identities.
	ports []drainPort
	// unknown is set if endpoints may have left that this picture's predecessor did not have.
	unknown bool
}

// drainID identifies a port of a Service, whose name may change.
type drainID struct {
	protocol uint8
	number   uint16
}

func (i drainID) compare(other drainID) int {
	return cmp.Or(cmp.Compare(i.protocol, other.protocol), cmp.Compare(i.number, other.number))
}

// drainPort has the frontends of a port as destinations, and the endpoints that get new connections, or would if they answered. Both
// kinds of traffic policy count: a client on the node uses all endpoints where others may use only local ones.
type drainPort struct {
	drainID
	destinations []destination
	targets      []netip.AddrPort
}

// newDrainPicture reduces a view; to nil if it has no deadline or no ports. If the context ends, the picture is
// incomplete.
func newDrainPicture(ctx context.Context, family service.Family, view *service.View) *drainPicture {
	if !view.Drain.Limited || len(view.Ports[family]) == 0 {
		return nil
	}
	p := &drainPicture{after: view.Drain.After}
	var scratch flowPicture
	for i := range view.Ports[family] {
		if ctx.Err() != nil {
			return p
		}
		from := &view.Ports[family][i]
		port := drainPort{drainID: drainID{from.Protocol.Number(), from.Port}, targets: sorted(slices.Concat(from.Reachable(), from.Avoided))}
		for _, f := range scratch.frontendsOf(from) {
			port.destinations = append(port.destinations, destination{Addr: f.Addr(), Port: f.Port(), Protocol: port.protocol})
		}
		p.ports = append(p.ports, port)
	}
	slices.SortFunc(p.ports, func(a, b drainPort) int { return a.compare(b.drainID) })
	return p
}

// port returns a port; nil if there is none.
func (p *drainPicture) port(id drainID) *drainPort {
	i, found := slices.BinarySearchFunc(p.ports, id, func(port drainPort, id drainID) int { return port.compare(id) })
	if !found {
		return nil
	}
	return &p.ports[i]
}

// overtaking returns the picture as it is when the family cleaner has not seen an older one. Endpoints that only the
// older one had may have got connections.
func (p *drainPicture) overtaking(older *drainPicture) *drainPicture {
	if p == nil || older == nil {
		return p
	}
	merged := *p
	merged.unknown = p.unknown || older.unknown || !slices.EqualFunc(p.ports, older.ports, func(a, b drainPort) bool {
		return a.drainID == b.drainID && slices.Equal(a.targets, b.targets)
	})
	return &merged
}

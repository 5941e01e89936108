// SPDX-License-Identifier: Apache-2.0

package actors

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

var (
	web     = service.Key{Namespace: "ns", Name: "web"}
	outputs = []Output{{Name: "one", Renderer: zoned{}, Programmed: unheard}, {Name: "two", Renderer: zoned{}, Programmed: unheard}}
	facts   = &service.NodeFacts{Name: "n1"}
	noon    = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
)

// zoned renders the zone of the node.
type zoned struct{ renderer }

func (zoned) Node(on *service.NodeFacts) []dataplane.Object {
	return []dataplane.Object{{ID: dataplane.ID{Name: "base"}, Body: "zone=" + on.Zone}}
}

func unheard(context.Context, service.View) {}

func spec() *service.Spec {
	return &service.Spec{
		Key: web, Created: noon,
		ClusterIPs: service.PerFamily[netip.Addr]{service.IPv4: netip.MustParseAddr("172.30.0.41")},
		Ports:      []service.Port{{Name: "http", Port: 80}},
	}
}

func slice(name string, addresses ...string) *service.Slice {
	s := &service.Slice{Service: web, Name: name, Ports: []service.SlicePort{{Name: "http", Port: 8080}}}
	for _, a := range addresses {
		s.Endpoints = append(s.Endpoints, service.SliceEndpoint{Addr: netip.MustParseAddr(a), Ready: true, Serving: true})
	}
	return s
}

// objects renders a view so that every endpoint shows.
func objects(view *service.View) []dataplane.Object {
	var text string
	for _, p := range view.Ports[service.IPv4] {
		for _, e := range p.Cluster {
			text += e.String() + " "
		}
	}
	if len(view.Ports[service.IPv4]) == 0 {
		return nil
	}
	return []dataplane.Object{{ID: dataplane.ID{Name: "web"}, Body: text}}
}

// turn ends a turn and returns the fragments that it submits.
func turn(m *Machine) (fragments []*dataplane.Fragment) {
	ready := m.Conclude(context.Background(), noon)
	return slices.DeleteFunc(ready.Fragments, func(f *dataplane.Fragment) bool { return f == nil })
}

func live(slices ...*service.Slice) *Machine {
	m := NewMachine(web, 3, outputs)
	m.Hydrate(service.Snapshot{Spec: spec(), Slices: slices}, facts, time.Now())
	return m
}

func applied(domain string, f *dataplane.Fragment) Acknowledged {
	return Acknowledged{dataplane.Ack{Key: web, Domain: domain, Revision: f.Revision}}
}

// SPDX-License-Identifier: Apache-2.0

package localport

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/listeners"
	"github.com/sluice-proxy/sluice/dataplane/relay"
	"github.com/sluice-proxy/sluice/service"
)

// Renderer implements [dataplane.Renderer] for one family: one listener for each TCP or UDP node
// port through which a client on this node can be served. Without endpoints there is no listener,
// so the host refuses clients immediately.
//
// Listeners are elements: if two Services claim the same node port, the ledger decides which gets it.
type Renderer struct {
	family service.Family
	listen netip.Addr
}

var _ dataplane.Renderer = (*Renderer)(nil)

// NewRenderer returns a renderer of one family.
func NewRenderer(family service.Family) *Renderer {
	return &Renderer{family: family, listen: service.Loopback[family]}
}

// Naming reads listeners.
type Naming struct{}

// Naming implements dataplane.Renderer.
func (r *Renderer) Naming() dataplane.Naming { return Naming{} }

// Frontend implements dataplane.Naming: the ledger needs no frontends here.
func (Naming) Frontend(dataplane.ID) (f service.Frontend, ok bool) { return f, false }

// Stage implements dataplane.Naming: no listener is on the way of packets to endpoints.
func (Naming) Stage(dataplane.ID) dataplane.Stage { return dataplane.StageNone }

// Sends implements dataplane.Naming.
func (Naming) Sends(o *dataplane.Object, each func(netip.AddrPort)) {
	t, _ := parseBody(o.Body) // a body that cannot be parsed is another process's
	for _, at := range t.to {
		each(at)
	}
}

// Node renders nothing: every listener belongs to a Service.
func (*Renderer) Node(*service.NodeFacts) []dataplane.Object { return nil }

// Service renders one Service.
func (r *Renderer) Service(ctx context.Context, view *service.View, facts *service.NodeFacts) []dataplane.Object {
	through, served := r.nodePortAddress(facts)
	if !served {
		return nil
	}
	var objects []dataplane.Object
	for i := range view.Ports[r.family] {
		port := &view.Ports[r.family][i]
		if port.NodePort == 0 || (port.Protocol != service.TCP && port.Protocol != service.UDP) {
			continue
		}
		if port.HasAny && len(port.Cluster) > 0 {
			listen := netip.AddrPortFrom(r.listen, port.NodePort)
			objects = append(objects, object(relay.Place{Protocol: port.Protocol, At: listen}, targetsOf(port, through)))
		}
	}
	return objects
}

// nodePortAddress returns the address of this node through which node ports are reached: the node
// IP if node ports answer there, otherwise the first address on which they answer; zero if none of
// these can be dialed. It reports false if node ports answer nowhere.
func (r *Renderer) nodePortAddress(facts *service.NodeFacts) (through netip.Addr, served bool) {
	own, on := facts.NodeIPs[r.family], facts.NodePorts[r.family]
	if (on.All || slices.Contains(on.Addresses, own)) && dialable(own) {
		return own, true
	}
	if at := slices.IndexFunc(on.Addresses, dialable); !on.All && at >= 0 {
		return on.Addresses[at], true
	}
	return netip.Addr{}, on.All || on.Loopback || len(on.Addresses) > 0
}

// dialable reports whether a node port can be reached at an address. A loopback address would lead
// back to this listener, and a link-local address means nothing without an interface.
func dialable(addr netip.Addr) bool {
	return addr.IsValid() && !addr.IsUnspecified() && !addr.IsLoopback() && !addr.IsLinkLocalUnicast()
}

// targetsOf returns where to forward a port's node port: to the node port at an address of this node,
// or, without one, to the endpoints. A node port serves this node's own clients from all endpoints,
// with any traffic policy, as in iptables mode.
func targetsOf(port *service.PortView, through netip.Addr) targets {
	if through.IsValid() {
		return targets{to: []netip.AddrPort{netip.AddrPortFrom(through, port.NodePort)}}
	}
	t := targets{affinity: time.Duration(port.AffinitySeconds) * time.Second}
	for _, e := range port.Cluster {
		t.to = append(t.to, e.AddrPort)
	}
	slices.SortFunc(t.to, netip.AddrPort.Compare)
	t.to = slices.Compact(t.to)
	return t
}

// object returns a listener as an object.
func object(p relay.Place, to targets) dataplane.Object {
	return dataplane.Object{ID: listeners.ID(p), Kind: dataplane.Element, Body: to.body()}
}

// Targets returns where the listener at an address forwards to; nil if there is none.
func Targets(objects []dataplane.Object, protocol service.Protocol, at netip.AddrPort) []netip.AddrPort {
	for i := range objects {
		if objects[i].ID == listeners.ID(relay.Place{Protocol: protocol, At: at}) {
			t, _ := parseBody(objects[i].Body) // the renderer wrote it
			return t.to
		}
	}
	return nil
}

// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"context"
	"net/netip"
	"slices"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/listeners"
	"github.com/sluice-proxy/sluice/dataplane/relay"
	"github.com/sluice-proxy/sluice/service"
)

// Part is the part of a family's Services that a domain serves. Because node ports are separate, a port of
// the host that another program occupies does not affect the addresses of a Service.
type Part uint8

// The parts.
const (
	// Addresses of Services: ClusterIPs, external IPs and those of load balancers.
	Addresses Part = iota
	// NodePorts at the host's addresses.
	NodePorts
)

// String returns the name of the part's domains.
func (p Part) String() string { return [...]string{"userspace", "nodeports"}[p] }

// Renderer implements dataplane.Renderer for one part of one family. It is immutable. Of SCTP ports,
// it renders only the addresses, so the host refuses clients.
type Renderer struct {
	part     Part
	family   service.Family
	settings Settings
}

// Settings are the same for all Services.
type Settings struct {
	// Seed is the seed of the hashes of clients.
	Seed uint32
	// Guarded is set if the writers of addresses have a guard.
	Guarded bool
	// HealthPort is the TCP port of the node's health server, which load balancers probe at their VIPs;
	// 0 if no server answers there.
	HealthPort uint16
}

var _ dataplane.Renderer = (*Renderer)(nil)

// NewRenderer returns a renderer.
func NewRenderer(part Part, family service.Family, settings Settings) *Renderer {
	return &Renderer{part, family, settings}
}

// Node renders the node's own objects: everything else belongs to Services.
func (r *Renderer) Node(*service.NodeFacts) []dataplane.Object {
	objects := []dataplane.Object{readyObject()}
	if r.settings.HealthPort != 0 && r.opensPorts() {
		objects = append(objects, healthObject(r.settings.HealthPort))
	}
	return objects
}

// opensPorts reports whether the part has a guard that lets health check ports answer.
func (r *Renderer) opensPorts() bool { return r.part == Addresses && r.settings.Guarded }

// Service renders one Service. Ports that share an address make equal objects;
// dataplane.NewFragment keeps the first.
func (r *Renderer) Service(ctx context.Context, view *service.View, facts *service.NodeFacts) []dataplane.Object {
	d := &draft{service: view.Key, proxyProtocol: view.ProxyProtocol, by: view.Balancing, drain: view.Drain, settings: r.settings, facts: facts, family: r.family, ctx: ctx}
	for i := range view.Ports[r.family] {
		d.port(r.part, &view.Ports[r.family][i])
	}
	if port := view.HealthPort(r.family); port != 0 && r.opensPorts() {
		d.objects = append(d.objects, healthObject(port))
	}
	return d.objects
}

// draft gathers the objects of one Service.
type draft struct {
	// ctx ends the rendering early; the loops over frontends poll it.
	ctx           context.Context
	service       service.Key
	proxyProtocol bool
	by            service.Balancing
	drain         service.Drain
	settings      Settings
	facts         *service.NodeFacts
	family        service.Family
	objects       []dataplane.Object
}

// port renders the frontends of a port that a part serves.
func (d *draft) port(part Part, p *service.PortView) {
	for e := range p.Exposures {
		switch {
		case d.ctx.Err() != nil:
			return
		case e.IsNodePort() != (part == NodePorts):
		case e.IsNodePort():
			for _, addr := range d.nodePortAddrs() {
				d.listener(p, netip.AddrPortFrom(addr, e.Port), d.table(e, addr))
			}
		default:
			// A VIP of a load balancer in front of the API server is served by the program that announces it.
			if d.facts.Binds(e) && !slices.Contains(d.host(), e.Addr) {
				d.objects = append(d.objects, addressObject(e.Addr))
			}
			d.listener(p, netip.AddrPortFrom(e.Addr, e.Port), d.table(e, e.Addr))
		}
	}
}

// host returns the host's addresses.
func (d *draft) host() []netip.Addr { return d.facts.NodePorts[d.family].Host }

// listener adds a listener if there is an endpoint anywhere, or if clients are to be dropped; else the kernel refuses.
func (d *draft) listener(p *service.PortView, at netip.AddrPort, t Table) {
	if !p.HasAny && p.Unserved() != service.NoEndpointsDrop || p.Protocol != service.TCP && p.Protocol != service.UDP {
		return
	}
	t.Service, t.Port, t.Affinity, t.Drain = d.service, p.Name, p.AffinitySeconds, d.drain
	t.ProxyProtocol = d.proxyProtocol && p.Protocol == service.TCP
	t.LeastConnections = d.by == service.LeastConnections
	switch {
	case d.by.Hashes():
		t.By, t.Seed = d.by, d.settings.Seed
	case d.by != service.LeastConnections:
		t.By = d.by
	}
	for _, e := range p.Reachable() {
		if e.Share() != 1 {
			t.setWeight(e.AddrPort, e.Weight)
		}
	}
	has := t.roles()
	for _, e := range p.Serving { // only UDP ports have any
		if has[e.AddrPort] == 0 {
			t.Kept = append(t.Kept, e.AddrPort)
		}
	}
	d.objects = append(d.objects, dataplane.Object{
		ID: listeners.ID(relay.Place{Protocol: p.Protocol, At: at}), Kind: dataplane.Element, Body: t.body(),
	})
}

// table returns the table of a frontend at an address. With externalTrafficPolicy Local, pods and this node reach
// all endpoints, because their connections have not come from outside.
func (d *draft) table(e *service.Exposure, at netip.Addr) Table {
	t := Table{Allowed: service.MergeRanges(e.Allowed), Denied: e.Denied, To: addrPorts(e.To)}
	if slices.ContainsFunc(t.Allowed, func(r netip.Prefix) bool { return r.Bits() == 0 }) {
		t.Allowed = nil
	}
	if !e.Local || e.Kind == service.ClusterIP {
		return t
	}
	t.NearTo = addrPorts(e.Near)
	// Over IPv4, what this node sends to a local address has that address as its source.
	t.Near = []netip.Prefix{single(at)}
	if cidr := d.facts.Detect[d.family].CIDR; cidr.IsValid() {
		t.Near = append(t.Near, cidr)
	}
	for _, addr := range d.host() {
		if addr != at {
			t.Near = append(t.Near, single(addr))
		}
	}
	return t
}

// nodePortAddrs returns the addresses on which node ports answer.
func (d *draft) nodePortAddrs() []netip.Addr {
	on := d.facts.NodePorts[d.family]
	if !on.All {
		return slices.DeleteFunc(slices.Clone(on.Addresses), func(a netip.Addr) bool {
			return a.Is6() && a.IsLinkLocalUnicast() // means nothing without an interface
		})
	}
	if !d.facts.LocalhostNodePorts {
		return on.Host
	}
	return append(slices.Clone(on.Host), service.Loopback[d.family])
}

func single(addr netip.Addr) netip.Prefix { return netip.PrefixFrom(addr, addr.BitLen()) }

func addrPorts(endpoints []service.Endpoint) []netip.AddrPort {
	var all []netip.AddrPort
	for _, e := range endpoints {
		all = append(all, e.AddrPort)
	}
	return all
}

// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"context"
	"net/netip"
	"slices"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/listeners"
	"github.com/sluice-proxy/sluice/dataplane/relay"
	"github.com/sluice-proxy/sluice/dataplane/slots"
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

// Size implements dataplane.Renderer: each frontend is a listener, which lists all endpoints or slots.
func (r *Renderer) Size(port service.PortSize, facts *service.NodeFacts) int {
	if port.FullTable && port.Endpoints > 0 {
		port.Endpoints = slots.TableSize(port.Endpoints)
	}
	if r.part == Addresses {
		return port.Addresses*(1+port.Endpoints) + (port.Addresses-1)*port.Denied + port.VIPs*port.Ranges
	}
	d := draft{facts: facts, family: r.family}
	return (port.Frontends(len(d.nodePortAddrs())) - port.Addresses) * (1 + port.Endpoints + port.Denied)
}

// Service renders one Service. Ports that share an address make equal objects;
// dataplane.NewFragment keeps the first.
func (r *Renderer) Service(ctx context.Context, view *service.View, facts *service.NodeFacts) []dataplane.Object {
	d := &draft{service: view.Key, proxyProtocol: view.ProxyProtocol, by: view.Balancing, drain: view.Drain, settings: r.settings, facts: facts, family: r.family, ctx: ctx}
	for i := range view.Ports[r.family] {
		if r.part == Addresses {
			d.addresses(&view.Ports[r.family][i])
		} else {
			d.nodePorts(&view.Ports[r.family][i])
		}
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

func (d *draft) addresses(p *service.PortView) {
	if p.ClusterIP.IsValid() {
		d.address(p.ClusterIP)
		d.listener(p, netip.AddrPortFrom(p.ClusterIP, p.Port), d.internal(p))
	}
	for _, addr := range p.ExternalIPs {
		if d.ctx.Err() != nil {
			return
		}
		d.externalAddress(addr)
		d.listener(p, netip.AddrPortFrom(addr, p.Port), d.external(p, addr))
	}
	for _, addr := range p.LoadBalancerVIPs {
		d.externalAddress(addr)
		t := d.external(p, addr)
		t.Allowed = allowed(p)
		d.listener(p, netip.AddrPortFrom(addr, p.Port), t)
	}
}

func (d *draft) nodePorts(p *service.PortView) {
	if p.NodePort == 0 {
		return
	}
	for _, addr := range d.nodePortAddrs() {
		d.listener(p, netip.AddrPortFrom(addr, p.NodePort), d.external(p, addr))
	}
}

// address makes an address local, unless it is the host's already.
func (d *draft) address(addr netip.Addr) {
	if !slices.Contains(d.host(), addr) {
		d.objects = append(d.objects, addressObject(addr))
	}
}

// externalAddress makes an external IP or a VIP local, unless it is the node's or the API server's; see MayBind. A VIP
// of a load balancer in front of the API server is served by the program that announces it.
func (d *draft) externalAddress(addr netip.Addr) {
	if d.facts.MayBind(addr) {
		d.address(addr)
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

// internal returns the table of the ClusterIP.
func (d *draft) internal(p *service.PortView) Table {
	if p.InternalLocal {
		return Table{To: addrPorts(p.Local)}
	}
	return Table{To: addrPorts(p.Cluster)}
}

// external returns the table of another frontend. With the Local policy, pods and this node reach
// all endpoints, because their connections have not come from outside.
func (d *draft) external(p *service.PortView, at netip.Addr) Table {
	if !p.ExternalLocal {
		return Table{To: addrPorts(p.Cluster), Denied: p.DenyRanges}
	}
	// Over IPv4, what this node sends to a local address has that address as its source.
	near := []netip.Prefix{single(at)}
	if cidr := d.facts.Detect[d.family].CIDR; cidr.IsValid() {
		near = append(near, cidr)
	}
	for _, addr := range d.host() {
		if addr != at {
			near = append(near, single(addr))
		}
	}
	return Table{Denied: p.DenyRanges, Near: near, NearTo: addrPorts(p.Cluster), To: addrPorts(p.Local)}
}

// allowed returns the sources that may come; nil for all.
func allowed(p *service.PortView) []netip.Prefix {
	ranges := service.MergeRanges(p.AllowedSources())
	if slices.ContainsFunc(ranges, func(r netip.Prefix) bool { return r.Bits() == 0 }) {
		return nil
	}
	return ranges
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
	return append(slices.Clone(on.Host), loopback[d.family])
}

var loopback = service.PerFamily[netip.Addr]{
	service.IPv4: netip.AddrFrom4([4]byte{127, 0, 0, 1}),
	service.IPv6: netip.IPv6Loopback(),
}

func single(addr netip.Addr) netip.Prefix { return netip.PrefixFrom(addr, addr.BitLen()) }

func addrPorts(endpoints []service.Endpoint) []netip.AddrPort {
	var all []netip.AddrPort
	for _, e := range endpoints {
		all = append(all, e.AddrPort)
	}
	return all
}

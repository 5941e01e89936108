// SPDX-License-Identifier: Apache-2.0

package render

import (
	"net/netip"

	"github.com/sluice-proxy/sluice/dataplane/ipvs/wire"
	"github.com/sluice-proxy/sluice/service"
)

// portDraft renders one service port.
type portDraft struct {
	*draft
	*service.PortView
	// internal and external are the bodies of the virtual servers of the ClusterIP
	// and of all other frontends.
	internal, external string
}

func newPortDraft(d *draft, of *service.View, view *service.PortView) *portDraft {
	p := &portDraft{draft: d, PortView: view}
	p.internal = p.body(of, p.internalEndpoints())
	p.external = p.internal
	if p.InternalLocal || p.ExternalLocal {
		p.external = p.body(of, p.externalEndpoints())
	}
	return p
}

// body returns the body of a virtual server with some endpoints.
func (p *portDraft) body(of *service.View, endpoints []service.Endpoint) string {
	s := Server{Service: p.renderer.head(of, p.PortView, service.Weighted(endpoints)), Grace: p.grace(of, endpoints)}
	s.Reals = make([]wire.Real, len(endpoints))
	for i, e := range endpoints {
		s.Reals[i] = wire.Real{Addr: e.AddrPort, Weight: uint32(e.Share())}
	}
	return s.body()
}

// grace returns which removed endpoints of a virtual server keep their connections, and for how long; endpoints are the
// current ones. Until the drain deadline, a TCP connection may last until it ends. A UDP flow has no visible end: it
// may last as long as the endpoint serves, for example while its pod terminates.
func (p *portDraft) grace(of *service.View, endpoints []service.Endpoint) (g Grace) {
	if mode := p.renderer.options.DrainDeadline; p.Protocol != service.SCTP && of.Drain.Or(mode) != mode {
		g.Drain = of.Drain
	}
	for _, e := range p.Serving { // both are sorted
		for len(endpoints) > 0 && endpoints[0].Compare(e) < 0 {
			endpoints = endpoints[1:]
		}
		if len(endpoints) == 0 || endpoints[0].AddrPort != e.AddrPort {
			g.Keeps = append(g.Keeps, e.AddrPort)
		}
	}
	return g
}

// served is the entry of an address at a port in sets of type hash:ip,port.
func (p *portDraft) served(addr netip.Addr, port uint16) wire.Entry {
	return wire.Entry{Addr: addr, Protocol: wire.Protocol(p.Protocol.Number()), Port: port}
}

// from is the entry of an address at the service's port, for clients in a range.
func (p *portDraft) from(addr netip.Addr, source netip.Prefix) wire.Entry {
	e := p.served(addr, p.Port)
	e.Second = source
	return e
}

// renderFrontends renders the virtual servers of all frontends, with their local addresses and entries of sets.
func (p *portDraft) renderFrontends() {
	for e := range p.Exposures {
		if p.ctx.Err() != nil {
			return
		}
		switch e.Kind {
		case service.ClusterIP:
			p.entry(setClusterIP, p.served(e.Addr, e.Port))
		case service.ExternalIP:
			set := setExternalIP
			if e.Local {
				set = SetExternalIPLocal
			}
			p.entry(set, p.served(e.Addr, e.Port))
		case service.LoadBalancerIP:
			p.entry(setLoadBalancer, p.served(e.Addr, e.Port))
			if e.Local {
				p.entry(SetLoadBalancerLocal, p.served(e.Addr, e.Port))
			}
			p.renderSourceRanges(e.Addr)
		case service.NodePort:
			p.renderNodePort(e)
			continue
		}
		if p.facts.Binds(e) {
			p.bind(e.Addr)
		}
		p.renderServer(e, e.Addr)
	}
}

// renderServer renders the virtual server of a frontend at an address. It drops clients from outside if they may use
// only endpoints on this node, and all endpoints are on other nodes.
func (p *portDraft) renderServer(e *service.Exposure, addr netip.Addr) {
	body := p.external
	if e.Kind == service.ClusterIP {
		body = p.internal
	} else if p.HasAny && e.Refusal != service.NoEndpointsDefault {
		p.entry(setNoLocalEndpoints, p.served(addr, e.Port))
	}
	p.objects = append(p.objects, serverObject(service.Frontend{Addr: addr, Port: e.Port, Protocol: e.Protocol}, body))
}

// renderSourceRanges admits only clients in the source ranges. A range of all addresses means no
// limit; a set cannot hold it.
func (p *portDraft) renderSourceRanges(addr netip.Addr) {
	for _, source := range p.SourceRanges {
		if source.Bits() == 0 {
			return
		}
	}
	if len(p.SourceRanges) == 0 {
		return
	}
	p.entry(SetLoadBalancerFW, p.served(addr, p.Port))
	for _, source := range p.SourceRanges {
		p.entry(setSourceCIDR, p.from(addr, source))
	}
	if p.NodeInSourceRanges {
		// What the node sends has the address itself as its source.
		p.entry(setSourceIP, p.from(addr, netip.PrefixFrom(addr, addr.BitLen())))
	}
}

// nodePortSets are the sets of node ports by protocol: of all, and of those that use only local
// endpoints.
var nodePortSets = map[service.Protocol][2]string{
	service.TCP:  {SetNodePortTCP, SetNodePortLocalTCP},
	service.UDP:  {SetNodePortUDP, SetNodePortLocalUDP},
	service.SCTP: {setNodePortSCTP, SetNodePortLocalSCTP},
}

// renderNodePort renders a virtual server for each of the node's addresses.
func (p *portDraft) renderNodePort(e *service.Exposure) {
	addrs := p.nodePortAddrs()
	if len(addrs) == 0 {
		return
	}
	sets := nodePortSets[e.Protocol]
	in := sets[:1]
	if e.Local {
		in = sets[:]
	}
	for _, set := range in {
		if e.Protocol != service.SCTP {
			p.entry(set, portEntry(e.Port))
			continue
		}
		for _, addr := range addrs {
			p.entry(set, p.served(addr, e.Port))
		}
	}
	for _, addr := range addrs {
		p.renderServer(e, addr)
	}
}

// renderHairpins masquerades connections of endpoints to themselves. Otherwise an endpoint would
// see a packet from its own address. Such connections are possible for the endpoints on this node.
// If clients that should use only local endpoints get others, because there is no local one, they
// are possible for all endpoints: pods of other nodes may enter through this node.
func (p *portDraft) renderHairpins() {
	everywhere := p.HasAny && p.ExternallyAccessible() && !p.ServesExternal()
	for _, e := range p.Reachable() {
		if !e.Local && !everywhere {
			continue
		}
		addr := e.AddrPort.Addr()
		self := p.served(addr, e.AddrPort.Port())
		self.Second = netip.PrefixFrom(addr, addr.BitLen())
		p.entry(setLoopBack, self)
	}
}

// balancers are the schedulers of the algorithms. The Maglev tables of mh differ between nodes only where the nodes
// added endpoints in different orders. A removed endpoint that drains keeps its part of the table, with weight 0
// (last_weight in net/netfilter/ipvs/ip_vs_mh.c, Linux 6.1): without the fallback, new connections to it are refused.
var balancers = map[service.Balancing]service.Scheduling{
	service.RoundRobin:     {Scheduler: "rr"},
	service.SourceHash:     {Scheduler: "mh", Fallback: true},
	service.ConnectionHash: {Scheduler: "mh", Ports: true, Fallback: true},

	service.LeastConnections: {Scheduler: "lc"},
}

// weighing maps schedulers to those that do the same by weight.
var weighing = map[string]string{"rr": "wrr", "lc": "wlc"}

// head returns the settings that a port's virtual servers share. The Service's scheduler for IPVS takes precedence over
// its algorithm for all modes.
func (r *Renderer) head(of *service.View, view *service.PortView, weighted bool) wire.Service {
	wish := of.Scheduling
	if wish.Scheduler == "" {
		wish = balancers[of.Balancing]
	}
	if wish.Scheduler == "" {
		// Like kube-proxy, mh hashes the client's port, too. Otherwise all connections of a
		// client would use one endpoint.
		wish = service.Scheduling{Scheduler: r.options.Scheduler, Ports: r.options.Scheduler == "mh"}
	}
	if by := weighing[wish.Scheduler]; weighted && by != "" && of.Scheduling.Scheduler == "" {
		wish.Scheduler = by
	}
	s := wire.Service{Scheduler: wish.Scheduler}
	if wish.Fallback {
		s.Flags |= wire.SchedulerFlag1
	}
	if wish.Ports {
		s.Flags |= wire.SchedulerFlag2
	}
	if view.AffinitySeconds > 0 {
		s.Flags |= wire.Persistent
		s.Timeout = uint32(view.AffinitySeconds)
	}
	return s
}

// internalEndpoints returns the endpoints of the ClusterIP.
func (p *portDraft) internalEndpoints() []service.Endpoint {
	if p.InternalLocal {
		return p.Local
	}
	return p.Cluster
}

// externalEndpoints returns the endpoints of all other frontends. With the Local policy and no
// endpoint on this node, the other endpoints still serve local pods, and a rule drops clients
// from outside.
func (p *portDraft) externalEndpoints() []service.Endpoint {
	if p.ExternalLocal && len(p.Local) > 0 {
		return p.Local
	}
	return p.Cluster
}

// SPDX-License-Identifier: Apache-2.0

package render

import (
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/nftables/rules"
	"github.com/sluice-proxy/sluice/dataplane/slots"
	"github.com/sluice-proxy/sluice/service"
)

// portDraft renders one service port.
type portDraft struct {
	*draft
	r     *Renderer
	facts *service.NodeFacts
	key   service.Key
	by    service.Balancing
	// steady is set if tables keep their size while weights change.
	steady bool
	port   *service.PortView
	// base names the chains of a port with affinity. It is empty without affinity.
	base string
	// comment is the comment of the port's elements, as an attribute.
	comment span
	// cluster and local are the tables of endpoints. Both are empty with affinity, whose
	// tables belong to the port alone.
	cluster, local slotTable
}

// slotTable is a table of slots, with the data of each endpoint in the buffer.
type slotTable struct {
	slotting
	data []span
}

// slotting is the assignment of endpoints to the slots of a table.
type slotting struct {
	pool
	// of has the endpoint of each slot in a full table, and the slot of each endpoint in any other table.
	of []int
}

// slotted assigns endpoints to slots. steady is as in slots.Table.
func slotted(endpoints []service.Endpoint, by service.Balancing, steady bool) slotting {
	switch {
	case len(endpoints) == 0:
		return slotting{}
	case by == service.Random && !steady && !service.Weighted(endpoints):
		return slotting{pool: pool{size: slots.Size(len(endpoints))}, of: slots.Assign(endpoints)}
	}
	of := slots.Table(endpoints, by.Hashes(), steady)
	return slotting{pool{len(of), true}, of}
}

// moduli returns the bounds of the random numbers that choose a slot, one after the other.
func (s slotting) moduli() []int {
	if s.full {
		return []int{s.size}
	}
	return moduli(s.size)
}

// each calls yield with each slot that has an endpoint, and the endpoint's index.
func (s slotting) each(yield func(slot, endpoint int)) {
	for i, n := range s.of {
		if s.full {
			yield(i, n)
		} else {
			yield(n, i)
		}
	}
}

func newPortDraft(
	draft *draft, r *Renderer, facts *service.NodeFacts, view *service.View, port *service.PortView,
) *portDraft {
	p := &portDraft{draft: draft, r: r, facts: facts, key: view.Key, by: view.Balancing, steady: view.Shifts, port: port}
	if p.by == service.LeastConnections {
		p.by = service.Random // with weights that follow the numbers of connections
	}
	text := p.key.PortString(port.Name)
	p.comment = p.put(func(b []byte) []byte { return rules.AppendComment(b, unix.NFTA_SET_ELEM_USERDATA, text) })
	if port.AffinitySeconds > 0 {
		p.base = portBase(p.key, port)
		return p
	}
	p.cluster = p.table(port.Cluster)
	if port.UsesLocal() {
		p.local = p.table(port.Local)
	}
	return p
}

func (p *portDraft) sticky() bool { return p.port.AffinitySeconds > 0 }

func (p *portDraft) table(endpoints []service.Endpoint) slotTable {
	if len(endpoints) == 0 {
		return slotTable{}
	}
	t := slotTable{slotting: slotted(endpoints, p.by, p.steady), data: make([]span, len(endpoints))}
	var data []byte
	for i, e := range endpoints {
		data = appendPort(appendAddr(data[:0], e.AddrPort.Addr()), e.AddrPort.Port())
		t.data[i] = p.commented(func(b []byte) []byte { return appendData(b, data) })
	}
	return t
}

// commented adds a body that ends with the port's comment.
func (p *portDraft) commented(fill func([]byte) []byte) span {
	return p.put(func(b []byte) []byte {
		return append(fill(b), p.bytes[p.comment.from:p.comment.to]...)
	})
}

// frontend is an address and port, or a node port, which has no address.
type frontend struct {
	addr netip.Addr
	port uint16
}

func (f frontend) nodePort() bool { return !f.addr.IsValid() }

// appendFrontend adds the frontend's key to a buffer.
func (p *portDraft) appendFrontend(b []byte, f frontend) []byte {
	if !f.nodePort() {
		b = appendAddr(b, f.addr)
	}
	return appendPort(appendProtocol(b, p.port.Protocol.Number()), f.port)
}

// named adds an element whose key is a frontend.
func (p *portDraft) named(set string, f frontend, body span, target ...dataplane.ID) {
	name := p.put(func(b []byte) []byte { return p.appendFrontend(b, f) })
	links := setLinks[set]
	if len(target) > 0 {
		links = dataplane.LinkTo(append(target, links.Refs...)...)
	}
	p.element(containers[set], name, body, links)
}

// dispatch leads a frontend to a chain.
func (p *portDraft) dispatch(f frontend, chain string) {
	set := mapFrontends.name
	if f.nodePort() {
		set = mapNodePorts.name
	}
	body := p.commented(func(b []byte) []byte { return appendGoto(b, chain) })
	p.named(set, f, body, chainID(chain))
	if isLimited(chain) {
		admitted, _ := externalTargets{nodePort: f.nodePort()}.admitted()
		p.named(admitted, f, p.comment)
	}
}

// fill adds the endpoints of a table to a map, for a frontend.
func (p *portDraft) fill(set string, f frontend, t slotTable) {
	t.each(func(slot, endpoint int) {
		name := p.put(func(b []byte) []byte { return appendSlot(p.appendFrontend(b, f), slot) })
		p.element(containers[set], name, t.data[endpoint], setLinks[set])
	})
}

// refuse adds a frontend that is not served. dispatched is set if a chain serves some clients or drops them.
//
// A dispatched frontend has two elements. By default, they are removed together. If a Service has annotations, one may
// be removed alone. The writer would take this for the removal of the frontend and drop its counts. So the comment of
// the remaining element changes, too.
func (p *portDraft) refuse(f frontend, dispatched bool) {
	comment := p.comment
	if dispatched && (p.denies() || p.port.NoEndpoints != service.NoEndpointsDefault) {
		text := p.key.PortString(p.port.Name) + ": others" // Origin.Owner reads up to a colon
		comment = p.put(func(b []byte) []byte { return rules.AppendComment(b, unix.NFTA_SET_ELEM_USERDATA, text) })
	}
	var set string
	switch by := p.port.Unserved(); {
	case by == service.NoEndpointsPass && f.addr != p.port.ClusterIP:
		return // no rule is about it
	case by == service.NoEndpointsPass:
		set = setPassed.name
	case f.nodePort() && by == service.NoEndpointsDrop:
		set = setNodePortNoLocal.name
	case f.nodePort():
		set = setNodePortNone.name
	case by == service.NoEndpointsDrop:
		set = setNoLocal.name
	default:
		set = setNoEndpoints.name
	}
	p.named(set, f, comment)
}

// renderInternal serves the ClusterIP.
func (p *portDraft) renderInternal() {
	if !p.port.ClusterIP.IsValid() {
		return
	}
	f := frontend{p.port.ClusterIP, p.port.Port}
	name := p.put(func(b []byte) []byte { return appendAddr(b, f.addr) })
	// All ports of the Service share this element, so it names none of them.
	owner := p.put(func(b []byte) []byte { return rules.AppendComment(b, unix.NFTA_SET_ELEM_USERDATA, p.key.String()) })
	p.element(containers[setClusterIPs.name], name, owner, setLinks[setClusterIPs.name])
	switch {
	case !p.port.ServesInternal():
		p.refuse(f, false)
	case p.sticky() && p.port.InternalLocal:
		p.dispatch(f, prefixLocalChain+p.base)
	case p.sticky():
		p.dispatch(f, prefixServiceChain+p.base)
	case p.port.InternalLocal:
		p.serve(f, class{kind: classLocal, local: p.local.pool})
		p.fill(p.r.maps.local.name, f, p.local)
	default:
		p.serve(f, class{kind: classCluster, cluster: p.cluster.pool})
		p.fill(p.r.maps.clusterOf(shardOf(f)), f, p.cluster)
	}
}

// serve leads a frontend to the chain of its class.
func (p *portDraft) serve(f frontend, c class) {
	c.nodePort, c.by = f.nodePort(), p.by
	if p.by == service.RoundRobin {
		c.turns = turnsOf(p.key, p.port)
	}
	if !c.nodePort && c.cluster.size > 0 {
		c.shard = shardOf(f)
	}
	p.own(p.r.class(c)...)
	p.dispatch(f, c.name())
}

// externalFrontends returns all frontends except the ClusterIP.
func (p *portDraft) externalFrontends() []frontend {
	var all []frontend
	for _, addrs := range [][]netip.Addr{p.port.ExternalIPs, p.port.LoadBalancerVIPs} {
		for _, addr := range addrs {
			all = append(all, frontend{addr, p.port.Port})
		}
	}
	if p.port.NodePort != 0 {
		all = append(all, frontend{port: p.port.NodePort})
	}
	return all
}

// renderExternal serves all frontends except the ClusterIP. With the Local policy and no endpoint
// on this node, it serves the node's own clients and rejects others.
func (p *portDraft) renderExternal() {
	for _, f := range p.externalFrontends() {
		if p.ctx.Err() != nil {
			return
		}
		switch {
		case p.port.HasAny:
			p.serveExternal(f)
		case p.denies(), p.limits(f) && p.port.Unserved() == service.NoEndpointsPass:
			// The chain serves no client. It drops sources that may not reach this frontend.
			p.serve(f, class{kind: classExternalLocal, limited: true, denying: p.denies()})
		}
		if !p.port.ServesExternal() {
			p.refuse(f, p.port.HasAny || p.denies())
		}
	}
}

func (p *portDraft) serveExternal(f frontend) {
	if p.sticky() {
		p.dispatch(f, p.externalTargets(f.nodePort()).chain(p.base))
		return
	}
	c := class{kind: classExternal, cluster: p.cluster.pool}
	if p.port.ExternalLocal {
		c = class{
			kind: classExternalLocal, cluster: p.cluster.pool, local: p.local.pool,
			detect: p.facts.Detect[p.r.d.Family],
		}
	}
	c.denying = p.denies()
	c.limited = c.denying || p.limits(f) || p.reachesNone()
	p.serve(f, c)
	shard, local := "", p.r.maps.nodePortLocal.name
	if !f.nodePort() {
		shard, local = shardOf(f), p.r.maps.local.name
	}
	p.fill(p.r.maps.clusterOf(shard), f, p.cluster)
	if p.port.ExternalLocal {
		p.fill(local, f, p.local)
	}
}

// limits reports whether the source ranges apply to a frontend.
func (p *portDraft) limits(f frontend) bool {
	return len(p.port.SourceRanges) > 0 && slices.Contains(p.port.LoadBalancerVIPs, f.addr)
}

// denies reports whether some sources may not reach frontends other than the ClusterIP.
func (p *portDraft) denies() bool { return len(p.port.DenyRanges) > 0 }

// reachesNone reports whether clients from outside the node reach no endpoint.
func (p *portDraft) reachesNone() bool {
	if p.port.ExternalLocal {
		return len(p.port.Local) == 0
	}
	return len(p.port.Cluster) == 0
}

// renderHairpins adds the endpoints that may reach themselves: those of this node and, with externalTrafficPolicy
// Local, all of them, because pods of other nodes that enter by this node keep their address. Several Services may have
// the same endpoint, so the element names none of them.
func (p *portDraft) renderHairpins() {
	everywhere := p.port.ExternalLocal && p.port.ExternallyAccessible()
	for _, e := range p.port.Reachable() {
		if !e.Local && !everywhere {
			continue
		}
		name := p.put(func(b []byte) []byte {
			b = appendAddr(appendAddr(b, e.AddrPort.Addr()), e.AddrPort.Addr())
			return appendPort(appendProtocol(b, p.port.Protocol.Number()), e.AddrPort.Port())
		})
		p.element(containers[setHairpins.name], name, span{}, setLinks[setHairpins.name])
	}
}

// renderFirewall limits the load balancer VIPs to the source ranges.
func (p *portDraft) renderFirewall() {
	if len(p.port.SourceRanges) == 0 {
		return
	}
	allowed := service.MergeRanges(p.port.AllowedSources()) // the kernel rejects ranges that overlap
	for _, vip := range p.port.LoadBalancerVIPs {
		f := frontend{vip, p.port.Port}
		p.named(setFirewalled.name, f, p.comment)
		p.named(setOutOfRange.name, f, p.comment)
		p.sources(setAllowed.name, f, allowed)
	}
}

// renderDenials adds the denied sources of all frontends except the ClusterIP.
func (p *portDraft) renderDenials() {
	if !p.denies() {
		return
	}
	for _, f := range p.externalFrontends() {
		if p.ctx.Err() != nil {
			return
		}
		counting, denied := setOutOfRange.name, setDenied.name
		if f.nodePort() {
			counting, denied = setNodePortOutOfRange.name, setNodePortDenied.name
		}
		if !p.limits(f) { // renderFirewall has added it
			p.named(counting, f, p.comment)
		}
		p.sources(denied, f, p.port.DenyRanges)
	}
}

// sources adds ranges of sources for a frontend. They must not overlap.
func (p *portDraft) sources(set string, f frontend, ranges []netip.Prefix) {
	for _, prefix := range ranges {
		name := p.put(func(b []byte) []byte {
			b = appendAddr(p.appendFrontend(b, f), prefix.Addr())
			return appendAddr(p.appendFrontend(b, f), lastOf(prefix))
		})
		p.element(containers[set], name, p.comment, setLinks[set])
	}
}

// lastOf returns the last address of a prefix.
func lastOf(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for bit := p.Bits(); bit < len(b)*8; bit++ {
		b[bit/8] |= 0x80 >> (bit % 8)
	}
	last, _ := netip.AddrFromSlice(b)
	return last
}

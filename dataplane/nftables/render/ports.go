// SPDX-License-Identifier: Apache-2.0

package render

import (
	"net/netip"

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

// appendFrontend adds the frontend's key to a buffer.
func appendFrontend(b []byte, f service.Frontend) []byte {
	if !f.IsNodePort() {
		b = appendAddr(b, f.Addr)
	}
	return appendPort(appendProtocol(b, f.Protocol.Number()), f.Port)
}

// named adds an element whose key is a frontend.
func (p *portDraft) named(set string, f service.Frontend, body span, target ...dataplane.ID) {
	name := p.put(func(b []byte) []byte { return appendFrontend(b, f) })
	links := setLinks[set]
	if len(target) > 0 {
		links = dataplane.LinkTo(append(target, links.Refs...)...)
	}
	p.element(containers[set], name, body, links)
}

// dispatch leads a frontend to a chain.
func (p *portDraft) dispatch(f service.Frontend, chain string) {
	set := mapFrontends.name
	if f.IsNodePort() {
		set = mapNodePorts.name
	}
	body := p.commented(func(b []byte) []byte { return appendGoto(b, chain) })
	p.named(set, f, body, chainID(chain))
	if isLimited(chain) {
		admitted, _ := externalTargets{nodePort: f.IsNodePort()}.admitted()
		p.named(admitted, f, p.comment)
	}
}

// fill adds the endpoints of a table to a map, for a frontend.
func (p *portDraft) fill(set string, f service.Frontend, t slotTable) {
	t.each(func(slot, endpoint int) {
		name := p.put(func(b []byte) []byte { return appendSlot(appendFrontend(b, f), slot) })
		p.element(containers[set], name, t.data[endpoint], setLinks[set])
	})
}

// refuse adds a frontend that is not served. dispatched is set if a chain serves some clients or drops them.
//
// A dispatched frontend has two elements. By default, they are removed together. If a Service has annotations, one may
// be removed alone. The writer would take this for the removal of the frontend and drop its counts. So the comment of
// the remaining element changes, too.
func (p *portDraft) refuse(e *service.Exposure, dispatched bool) {
	comment := p.comment
	if dispatched && (len(e.Denied) > 0 || p.port.NoEndpoints != service.NoEndpointsDefault) {
		text := p.key.PortString(p.port.Name) + ": others" // Origin.Owner reads up to a colon
		comment = p.put(func(b []byte) []byte { return rules.AppendComment(b, unix.NFTA_SET_ELEM_USERDATA, text) })
	}
	var set string
	switch {
	case e.Refusal == service.NoEndpointsPass && e.Kind != service.ClusterIP:
		return // no rule is about it
	case e.Refusal == service.NoEndpointsPass:
		set = setPassed.name
	case e.IsNodePort() && e.Refusal == service.NoEndpointsDrop:
		set = setNodePortNoLocal.name
	case e.IsNodePort():
		set = setNodePortNone.name
	case e.Refusal == service.NoEndpointsDrop:
		set = setNoLocal.name
	default:
		set = setNoEndpoints.name
	}
	p.named(set, e.Frontend, comment)
}

// renderFrontends serves, refuses and limits each frontend.
func (p *portDraft) renderFrontends() {
	for e := range p.port.Exposures {
		switch {
		case p.ctx.Err() != nil:
			return
		case e.Kind == service.ClusterIP:
			p.renderInternal(e)
		default:
			p.renderExternal(e)
		}
		p.renderSources(e)
	}
}

// renderInternal serves the ClusterIP.
func (p *portDraft) renderInternal(e *service.Exposure) {
	f := e.Frontend
	name := p.put(func(b []byte) []byte { return appendAddr(b, f.Addr) })
	// All ports of the Service share this element, so it names none of them.
	owner := p.put(func(b []byte) []byte { return rules.AppendComment(b, unix.NFTA_SET_ELEM_USERDATA, p.key.String()) })
	p.element(containers[setClusterIPs.name], name, owner, setLinks[setClusterIPs.name])
	switch {
	case e.Refusal != service.NoEndpointsDefault:
		p.refuse(e, false)
	case p.sticky() && e.Local:
		p.dispatch(f, prefixLocalChain+p.base)
	case p.sticky():
		p.dispatch(f, prefixServiceChain+p.base)
	case e.Local:
		p.serve(f, class{kind: classLocal, local: p.local.pool})
		p.fill(p.r.maps.local.name, f, p.local)
	default:
		p.serve(f, class{kind: classCluster, cluster: p.cluster.pool})
		p.fill(p.r.maps.clusterOf(shardOf(f)), f, p.cluster)
	}
}

// serve leads a frontend to the chain of its class.
func (p *portDraft) serve(f service.Frontend, c class) {
	c.nodePort, c.by = f.IsNodePort(), p.by
	if p.by == service.RoundRobin {
		c.turns = turnsOf(p.key, p.port)
	}
	if !c.nodePort && c.cluster.size > 0 {
		c.shard = shardOf(f)
	}
	chains := p.r.class(c)
	p.own(chains...)
	p.dispatch(f, chains[0].ID.Name)
}

// renderExternal serves a frontend other than the ClusterIP. With the Local policy and no endpoint on this node, it
// serves the node's own clients and rejects others.
func (p *portDraft) renderExternal(e *service.Exposure) {
	denying := len(e.Denied) > 0
	switch {
	case p.port.HasAny:
		p.serveExternal(e)
	case denying, len(e.Allowed) > 0 && e.Refusal == service.NoEndpointsPass:
		// The chain serves no client. It drops sources that may not reach this frontend.
		p.serve(e.Frontend, class{kind: classExternalLocal, limited: true, denying: denying})
	}
	if e.Refusal != service.NoEndpointsDefault {
		p.refuse(e, p.port.HasAny || denying)
	}
}

func (p *portDraft) serveExternal(e *service.Exposure) {
	f := e.Frontend
	if p.sticky() {
		p.dispatch(f, p.externalTargets(e).chain(p.base))
		return
	}
	c := class{kind: classExternal, cluster: p.cluster.pool}
	if e.Local {
		c = class{
			kind: classExternalLocal, cluster: p.cluster.pool, local: p.local.pool,
			detect: p.facts.Detect[p.r.d.Family],
		}
	}
	c.denying = len(e.Denied) > 0
	c.limited = c.denying || len(e.Allowed) > 0 || len(e.To) == 0
	p.serve(f, c)
	shard, local := "", p.r.maps.nodePortLocal.name
	if !f.IsNodePort() {
		shard, local = shardOf(f), p.r.maps.local.name
	}
	p.fill(p.r.maps.clusterOf(shard), f, p.cluster)
	if e.Local {
		p.fill(local, f, p.local)
	}
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

// renderSources limits a frontend to its allowed sources, and drops the denied sources.
func (p *portDraft) renderSources(e *service.Exposure) {
	counting, denied := setOutOfRange.name, setDenied.name
	if e.IsNodePort() {
		counting, denied = setNodePortOutOfRange.name, setNodePortDenied.name
	}
	if len(e.Allowed)+len(e.Denied) > 0 {
		p.named(counting, e.Frontend, p.comment)
	}
	if len(e.Allowed) > 0 {
		p.named(setFirewalled.name, e.Frontend, p.comment)
		p.sources(setAllowed.name, e.Frontend, service.MergeRanges(e.Allowed)) // the kernel rejects ranges that overlap
	}
	p.sources(denied, e.Frontend, e.Denied)
}

// sources adds ranges of sources for a frontend. They must not overlap.
func (p *portDraft) sources(set string, f service.Frontend, ranges []netip.Prefix) {
	for _, prefix := range ranges {
		name := p.put(func(b []byte) []byte {
			b = appendAddr(appendFrontend(b, f), prefix.Addr())
			return appendAddr(appendFrontend(b, f), lastOf(prefix))
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

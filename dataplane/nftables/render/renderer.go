// SPDX-License-Identifier: Apache-2.0

// Package render turns Services into elements of a few nf_tables maps. It defines everything that
// nftables mode puts into the kernel: names, sets, chains and rules. Packets are treated as in
// kube-proxy's nftables mode, but the ruleset has a different shape (docs/design/nftables.md):
//
//	frontends         address, protocol, port ─► class chain, for example cluster-12
//	cluster-12        tries random slots of a table of 12; all Services of that size share it
//	cluster-endpoints address, protocol, port, slot ─► endpoint
//
// A Service consists of elements, so it costs other Services nothing. Only Services with
// ClientIP affinity have their own chains, because the kernel must remember the clients
// of each.
package render

import (
	"context"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/internal/netlink"
	"github.com/sluice-proxy/sluice/service"
)

// Options are the settings that rules depend on and that never change while the process
// runs.
type Options struct {
	// MasqueradeBit is the bit of the packet mark, 0 to 31, that requests source NAT.
	// kube-proxy's default is 14.
	MasqueradeBit uint
	// CountEndpoints counts new connections by endpoint, in addition to those by frontend.
	CountEndpoints bool
	// Seed is the seed of the hashes of clients.
	Seed uint32
}

// Renderer implements dataplane.Renderer for one family. The bodies of the objects are the
// bytes that go to the kernel and come back from it. It caches rendered class chains.
//
// A Service has, per port:
//
//	@frontends            one verdict per ClusterIP, external IP, load balancer VIP
//	@nodeports            one verdict for the node port
//	@cluster-endpoints …  one slot per frontend and endpoint
//	@no-endpoints …       one element per frontend that cannot be served
//	cluster-12 …          the class chains that its verdicts lead to
//	@hairpins             one element per endpoint that may reach itself
//
// With ClientIP affinity, verdicts lead to separate chains of the port instead; see affinity.go.
type Renderer struct {
	d    *dialect
	mark uint32
	maps *endpointMaps
	seed uint32
	// classes caches the result of class.render by class.
	classes sync.Map
}

var _ dataplane.Renderer = (*Renderer)(nil)

// NewRenderer returns a renderer of one family.
func NewRenderer(family service.Family, options Options) *Renderer {
	maps := plainMaps
	if options.CountEndpoints {
		maps = countingMaps
	}
	return &Renderer{d: dialects[family], mark: 1 << options.MasqueradeBit, maps: maps, seed: options.Seed}
}

// Service renders one Service. If two ports claim the same element, both appear;
// dataplane.NewFragment keeps the first.
func (r *Renderer) Service(ctx context.Context, view *service.View, facts *service.NodeFacts) []dataplane.Object {
	ports := view.Ports[r.d.Family]
	if len(ports) == 0 {
		return nil
	}
	draft := drafts.Get().(*draft)
	defer drafts.Put(draft)
	draft.reset()
	draft.ctx = ctx
	for i := range ports {
		if ctx.Err() != nil {
			return nil
		}
		p := newPortDraft(draft, r, facts, view, &ports[i])
		p.renderFrontends()
		p.renderHairpins()
		p.renderAffinity()
	}
	return draft.objects()
}

// class returns a class chain and the chains that it leads to.
func (r *Renderer) class(c class) []dataplane.Object {
	if c.turns != "" {
		return c.render(r) // only one Service has this class
	}
	if known, ok := r.classes.Load(c); ok {
		return known.([]dataplane.Object)
	}
	known, _ := r.classes.LoadOrStore(c, c.render(r))
	return known.([]dataplane.Object)
}

// draft collects the objects of one Service. The bytes of all elements are in one buffer,
// which becomes one string that they share: a Service costs a few allocations, not two per
// endpoint and frontend.
type draft struct {
	// ctx ends the rendering early; the loops over frontends poll it.
	ctx      context.Context
	bytes    []byte
	elements []elementDraft
	owned    []dataplane.Object
}

// span is a part of the buffer.
type span struct{ from, to int }

// elementDraft is an element whose bytes are still in the buffer.
type elementDraft struct {
	container string
	name      span
	body      span
	links     *dataplane.Links
}

// drafts are reused, because their buffers are half of what rendering allocates.
var drafts = sync.Pool{New: func() any { return new(draft) }}

// reset empties the draft and keeps its buffers.
func (d *draft) reset() { d.bytes, d.elements, d.owned = d.bytes[:0], d.elements[:0], nil }

// put adds bytes to the buffer.
func (d *draft) put(fill func([]byte) []byte) span {
	from := len(d.bytes)
	d.bytes = fill(d.bytes)
	return span{from, len(d.bytes)}
}

// element adds an element of a set.
func (d *draft) element(container string, name, body span, links *dataplane.Links) {
	d.elements = append(d.elements, elementDraft{container, name, body, links})
}

// own adds complete objects.
func (d *draft) own(objects ...dataplane.Object) { d.owned = append(d.owned, objects...) }

// objects returns all objects.
func (d *draft) objects() []dataplane.Object {
	objects := make([]dataplane.Object, 0, len(d.elements)+len(d.owned))
	return append(d.appendElements(objects), d.owned...)
}

// appendElements appends the elements.
func (d *draft) appendElements(objects []dataplane.Object) []dataplane.Object {
	text := string(d.bytes)
	if len(d.elements) > cap(objects)-len(objects) {
		// Double: append alone grows in small steps, and leaves several times as much garbage.
		objects = slices.Grow(objects, max(len(d.elements), len(objects)))
	}
	for _, e := range d.elements {
		objects = append(objects, dataplane.Object{
			ID:    dataplane.ID{Container: e.container, Name: text[e.name.from:e.name.to]},
			Kind:  dataplane.Element,
			Body:  text[e.body.from:e.body.to],
			Links: e.links,
		})
	}
	return objects
}

// Priorities of the base chains: kube-proxy's for translation, and the next one after DNAT.
const (
	priorityDNAT   = -100
	priorityReject = priorityDNAT + 1
	prioritySNAT   = 100
)

// Node renders the scaffold: the table, the shared sets, the base chains, the fixed chains,
// and what depends on node facts.
func (r *Renderer) Node(facts *service.NodeFacts) []dataplane.Object {
	objects := []dataplane.Object{tableObject()}
	for _, s := range slices.Concat(nodeSets, r.maps.shared()) {
		objects = append(objects, s.object(r.d))
	}
	for _, c := range r.baseChains(facts) {
		objects = append(objects, c.object())
	}
	for _, c := range []*chain{
		r.servicesChain(facts), r.nodePorts(), r.nodePortCheck(),
		r.clusterIPsCheck(chainClusterIPsCheck), r.clusterIPsCheck(chainClusterIPsOutput),
		r.firewallCheck(), r.outOfRange(), r.nodePortOutOfRange(), r.passed(), r.unallocated(), r.masquerading(), r.reject(),
	} {
		objects = append(objects, c.object())
	}
	return append(objects, r.nodePortAddresses(facts)...)
}

// tableObject is the table itself: not dormant.
func tableObject() dataplane.Object {
	return ownedObject(tableID, netlink.AppendUint32(nil, unix.NFTA_TABLE_FLAGS, 0))
}

// baseChains returns the chains that the kernel calls. They are all of type nat, which sees only
// the first packet of a connection: a rejected packet never creates a connection, and later packets
// of a served connection cost no lookup (docs/adr/0006-nftables-shape.md).
func (r *Renderer) baseChains(facts *service.NodeFacts) []*chain {
	return []*chain{
		r.dispatch(chainNATPrerouting, unix.NF_INET_PRE_ROUTING),
		r.dispatch(chainNATOutput, unix.NF_INET_LOCAL_OUT),
		r.rejecting(ChainRejectPrerouting, unix.NF_INET_PRE_ROUTING, chainClusterIPsCheck, facts),
		r.rejecting(ChainRejectOutput, unix.NF_INET_LOCAL_OUT, chainClusterIPsOutput, facts),
		newBaseChain(chainNATPostrouting, natAt(unix.NF_INET_POST_ROUTING, prioritySNAT)).
			add(newRule(r.d).jump(chainMasquerading)),
	}
}

// dispatch returns a base chain that sends packets to Services.
func (r *Renderer) dispatch(name string, hookNumber uint32) *chain {
	return newBaseChain(name, natAt(hookNumber, priorityDNAT)).add(newRule(r.d).jump(chainServices))
}

// rejecting returns a base chain that rejects packets that have no endpoint. The kernel calls the chains of type
// nat at a hook in the order of their priorities, until one translates. So packets that Sluice or another
// program translates do not reach this chain. The checks are rules of the base chain itself, without a jump,
// because every connection to any other destination pays for them.
func (r *Renderer) rejecting(name string, hookNumber uint32, check string, facts *service.NodeFacts) *chain {
	d := r.d
	c := newBaseChain(name, natAt(hookNumber, priorityReject)).
		add(newRule(d).fields(frontendKey).in(setNoEndpoints.name, false).goTo(chainReject)).
		add(newRule(d).fields(frontendKey).in(setNoLocal.name, false).drop()).
		add(newRule(d).fields([]field{fieldDaddr}).in(setClusterIPs.name, false).goTo(check))
	for _, cidr := range facts.ServiceCIDRs[d.Family] {
		to := newRule(d)
		if cidr.Bits() > 0 {
			to.within(fieldDaddr, cidr, false)
		}
		c.add(unlessHere(to, check).goTo(chainUnallocated))
	}
	return c.add(r.toNode(facts).goTo(chainNodePortCheck))
}

// unlessHere exempts packets that arrive for an address of this node from a check of ClusterIPs:
// the host delivers them, for example to a DNS cache that has a ClusterIP. Packets that the node
// itself sends are checked.
func unlessHere(to *rule, check string) *rule {
	if check == chainClusterIPsOutput {
		return to
	}
	return to.local(fieldDaddr, true)
}

// servicesChain dispatches by frontend. A packet that returns from the chain is not served.
func (r *Renderer) servicesChain(facts *service.NodeFacts) *chain {
	d := r.d
	c := newChain(chainServices)
	toClusterIP := newRule(d)
	if !facts.MasqueradeAll {
		toClusterIP = nil
		if detect := facts.Detect[d.Family]; detect.Configured() {
			// The sender is first, because a comparison costs less than a lookup.
			toClusterIP = localPods(d, detect, true)
		}
	}
	if toClusterIP != nil {
		c.add(toClusterIP.fields([]field{fieldDaddr}).in(setClusterIPs.name, false).mark(r.mark).
			says("masquerade traffic to ClusterIPs"))
	}
	c.add(newRule(d).fields(frontendKey).vmap(mapFrontends.name))
	return c.add(r.toNode(facts).goTo(chainNodePorts))
}

// toNode begins a rule for packets to addresses on which node ports answer. They never answer on
// loopback addresses.
func (r *Renderer) toNode(facts *service.NodeFacts) *rule {
	d := r.d
	if facts.NodePorts[d.Family].All {
		return newRule(d).within(fieldDaddr, d.loopback, true).local(fieldDaddr, false)
	}
	return newRule(d).fields([]field{fieldDaddr}).in(setNodePortAddresses.name, false)
}

// nodePorts dispatches by node port.
func (r *Renderer) nodePorts() *chain {
	return newChain(chainNodePorts).
		add(newRule(r.d).fields(nodePortKey).vmap(mapNodePorts.name))
}

// nodePortAddresses returns the set elements of the addresses on which node ports answer.
func (r *Renderer) nodePortAddresses(facts *service.NodeFacts) []dataplane.Object {
	on := facts.NodePorts[r.d.Family]
	if on.All {
		return nil
	}
	var objects []dataplane.Object
	for _, addr := range on.Addresses {
		if addr.IsLoopback() {
			continue
		}
		objects = append(objects, dataplane.Object{
			ID:   dataplane.ID{Container: elementsOf + setNodePortAddresses.name, Name: string(appendAddr(nil, addr))},
			Kind: dataplane.Element, Links: setLinks[setNodePortAddresses.name],
		})
	}
	return objects
}

// nodePortCheck ends connections to node ports that no rule has served.
func (r *Renderer) nodePortCheck() *chain {
	d := r.d
	return newChain(chainNodePortCheck).
		add(newRule(d).fields(nodePortKey).in(setNodePortNone.name, false).goTo(chainReject)).
		add(newRule(d).fields(nodePortKey).in(setNodePortNoLocal.name, false).drop())
}

// clusterIPsCheck ends connections to ClusterIPs that no rule has served or rejected yet. A packet of
// a connection that is older than the first chain of type nat reaches it although a rule served the
// packet: the kernel does not translate such a connection.
func (r *Renderer) clusterIPsCheck(name string) *chain {
	return newChain(name).
		add(newRule(r.d).confirmed().leave()).
		add(newRule(r.d).fields(frontendKey).in(setPassed.name, false).goTo(chainPassed)).
		add(unlessHere(newRule(r.d), name).reject().says("Reject traffic to invalid ports of ClusterIPs"))
}

// reject answers that the port is unreachable, but only to clients that the source ranges
// allow. The set that led here has counted the packet.
func (r *Renderer) reject() *chain {
	return newChain(chainReject).
		add(r.notAllowed().drop()).
		add(newRule(r.d).reject())
}

// firewallCheck drops packets from sources outside the source ranges of a frontend. It has no effect
// on frontends without source ranges.
func (r *Renderer) firewallCheck() *chain {
	return newChain(chainFirewallCheck).add(r.notAllowed().goTo(chainOutOfRange))
}

// notAllowed begins a rule for clients outside the source ranges of a frontend.
func (r *Renderer) notAllowed() *rule {
	return newRule(r.d).fields(frontendKey).in(setFirewalled.name, false).fields(sourceKey).in(setAllowed.name, true)
}

// outOfRange counts and drops packets. It drops a packet even if no element counts it.
func (r *Renderer) outOfRange() *chain {
	return newChain(chainOutOfRange).
		add(newRule(r.d).fields(frontendKey).in(setOutOfRange.name, false)).
		add(newRule(r.d).drop())
}

// passed handles packets that a Service without endpoints leaves to other programs. It removes the mark that traffic
// to ClusterIPs gets.
func (r *Renderer) passed() *chain {
	return newChain(chainPassed).add(newRule(r.d).marked(r.mark).unmark(r.mark))
}

// nodePortOutOfRange is outOfRange for node ports.
func (r *Renderer) nodePortOutOfRange() *chain {
	return newChain(chainNodePortOutOfRange).
		add(newRule(r.d).fields(nodePortKey).in(setNodePortOutOfRange.name, false)).
		add(newRule(r.d).drop())
}

// unallocated counts and drops packets. The chain does not change with the ClusterIP ranges, so its counter
// continues.
func (r *Renderer) unallocated() *chain {
	return newChain(chainUnallocated).
		add(newRule(r.d).count().drop().says("Drop traffic to unallocated ClusterIPs"))
}

// masquerading gives marked packets and hairpins an address of this node.
func (r *Renderer) masquerading() *chain {
	return newChain(chainMasquerading).
		add(newRule(r.d).marked(r.mark).unmark(r.mark).masquerade()).
		add(newRule(r.d).translated().
			fields(hairpinKey).in(setHairpins.name, false).masquerade())
}

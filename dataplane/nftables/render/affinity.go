// SPDX-License-Identifier: Apache-2.0

package render

import (
	"crypto/sha256"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// A service port with ClientIP affinity has its own chains and sets, for each list of endpoints
// (Cluster and Local):
//
//	external-…, limited-… ─► service-…, local-… ─► remember-…
//	                └─ known-… ────────────┘
//
//	clients-…   client ─► endpoint; rules add entries, and the kernel removes them after a timeout
//	slots-…     slot ─► endpoint
//	live-…      the endpoints of the list
//	targets-…   endpoint ─► address and port, for both lists
//
//	remembered-… the clients of all lists that share it, to limit their number
//
// The chain of a list looks the client up in the clients map of this list, then in that of the other
// one. If it finds an endpoint that is live in this list, the packet goes there; otherwise a random
// slot decides. The remember chain stores the choice and translates. Neither the rules that a packet
// passes nor the objects that a change writes grow with the number of endpoints. Entries of a removed
// endpoint stay in the clients maps, but have no effect: a random slot decides again.
//
// Rules pass the endpoint on in the packet's destination address, which is about to be replaced
// anyway, because nft 1.0.6 aborts at a rule in which one lookup has the result of another as its key
// (docs/adr/0033-affinity.md). So a packet whose destination was replaced never leaves such a chain
// untranslated. Packets of connections that the kernel does not translate return immediately.

// affinityDraft renders the affinity of one service port.
type affinityDraft struct {
	*portDraft
	// ids are the addresses that identify the endpoints; see endpointIDs.
	ids map[netip.AddrPort]netip.Addr
}

// endpointList is one list of endpoints, with the name of its chain.
type endpointList struct {
	chain     string
	endpoints []service.Endpoint
}

func (p *portDraft) renderAffinity() {
	if !p.sticky() {
		return
	}
	var lists []endpointList
	if len(p.port.Cluster) > 0 {
		lists = append(lists, endpointList{prefixServiceChain + p.base, p.port.Cluster})
	}
	if p.port.UsesLocal() && len(p.port.Local) > 0 {
		lists = append(lists, endpointList{prefixLocalChain + p.base, p.port.Local})
	}
	if len(lists) > 0 {
		endpoints := p.port.Reachable()
		a := &affinityDraft{p, endpointIDs(endpoints, p.port)}
		a.renderTargets(endpoints)
		for _, list := range lists {
			a.renderList(list, lists)
		}
	}
	if !p.port.HasAny {
		return
	}
	owned := ""
	for e := range p.port.Exposures {
		if t := p.externalTargets(e); e.Kind != service.ClusterIP && t.chain(p.base) != owned {
			owned = t.chain(p.base)
			external := newChain(owned)
			t.fill(external, p.r, p.facts.Detect[p.r.d.Family])
			p.own(external.object())
		}
	}
}

// externalTargets returns the targets of an external frontend of a port with affinity. All external addresses of the
// port share a chain, which is limited if source ranges limit one of them. The node port shares this chain unless it is
// limited: source ranges do not apply to the node port, whose counters have another key.
func (p *portDraft) externalTargets(e *service.Exposure) externalTargets {
	t := externalTargets{policyLocal: e.Local, nodePort: e.IsNodePort(), denying: len(e.Denied) > 0}
	t.limited = t.denying || len(e.To) == 0 || !t.nodePort && len(p.port.LoadBalancerVIPs) > 0 && len(p.port.SourceRanges) > 0
	if len(e.Near) > 0 {
		t.cluster = prefixServiceChain + p.base
	}
	if e.Local && len(e.To) > 0 {
		t.local = prefixLocalChain + p.base
	}
	return t
}

// chain returns the name of the chain of a port with affinity.
func (t externalTargets) chain(base string) string {
	switch {
	case !t.limited:
		return prefixExternalChain + base
	case t.nodePort:
		return prefixNodePort + prefixLimited + base
	default:
		return prefixLimited + base
	}
}

// renderTargets renders the map of targets, which the lists of the port share.
func (a *affinityDraft) renderTargets(endpoints []service.Endpoint) {
	targets := a.r.maps.targets.of(a.base)
	a.own(targets.object(a.r.d))
	for _, e := range endpoints {
		key := a.put(func(b []byte) []byte { return appendAddr(b, a.ids[e.AddrPort]) })
		body := a.put(func(b []byte) []byte {
			return appendData(b, appendPort(appendAddr(nil, e.AddrPort.Addr()), e.AddrPort.Port()))
		})
		a.elementOf(targets, key, body)
	}
}

// renderList renders the choice among the endpoints of one list.
func (a *affinityDraft) renderList(list endpointList, all []endpointList) {
	d := a.r.d
	clients, live, choice := clientsMap(list.chain), liveSet(list.chain), slotsMap(list.chain)
	remember := a.rememberChain(list.chain)
	known := newChain(prefixKnownChain + list.chain).
		add(newRule(d).fields([]field{fieldDaddr}).in(live.name, false).goTo(remember.Name)).
		add(newRule(d).forget(clients.name)) // the remember chain does not replace an existing entry
	out := newChain(list.chain).
		add(newRule(d).confirmed().leave()) // the kernel would not translate the packet
	recall := func(from endpointList) {
		name := clientsMap(from.chain).name
		out.add(newRule(d).fields([]field{fieldSaddr}).readdress(name).jump(known.Name))
	}
	recall(list)
	for _, other := range all {
		if other.chain != list.chain {
			recall(other)
		}
	}
	table := slotted(list.endpoints, service.Random, a.steady)
	for _, modulus := range table.moduli() {
		out.add(newRule(d).numgen(modulus).readdress(choice.name).goTo(remember.Name))
	}
	a.own(clients.object(d), live.object(d), choice.object(d), remember.object(), known.object(), out.object())
	for _, e := range list.endpoints {
		a.elementOf(live, a.put(func(b []byte) []byte { return appendAddr(b, a.ids[e.AddrPort]) }), span{})
	}
	table.each(func(slot, endpoint int) {
		id := appendAddr(nil, a.ids[list.endpoints[endpoint].AddrPort])
		a.elementOf(choice, a.put(func(b []byte) []byte { return appendSlot(b, slot) }),
			a.put(func(b []byte) []byte { return appendData(b, id) }))
	})
}

// rememberChain stores the endpoint from the packet's destination address and translates the packet to it.
func (a *affinityDraft) rememberChain(list string) *chain {
	d := a.r.d
	clients, targets, memory := clientsMap(list).name, a.r.maps.targets.of(a.base).name, memoryOf(a.base)
	milliseconds := uint64(a.port.AffinitySeconds) * 1000
	translate := newRule(d).meta(unix.NFT_META_L4PROTO).cmp([]byte{a.port.Protocol.Number()}, false) // nft -f wants it
	return newChain(prefixRememberChain + list).
		add(newRule(d).account(memory, milliseconds).remember(clients, milliseconds)).
		add(translate.fields([]field{fieldDaddr}).dnatBy(targets)).
		add(newRule(d).drop())
}

// elementOf adds an element of a set that belongs to the port alone.
func (a *affinityDraft) elementOf(s set, key, body span) {
	a.element(ContainerOf(s.name), key, body, dataplane.LinkTo(setID(s.name)))
}

// endpointIDs returns the address that identifies each endpoint of a service port, in sets and in
// packets between two rules: the endpoint's address, unless another endpoint has the same one.
// Then it is an address made of the endpoint's hash, in a range that no packet is sent to.
//
// Of endpoints with the same address, one that is a frontend of the port itself keeps the address. A
// connection to that frontend may be translated to the destination that it already has. The kernel then
// does not rewrite its packets, so the destination that the rules wrote must be the right one.
func endpointIDs(endpoints []service.Endpoint, port *service.PortView) map[netip.AddrPort]netip.Addr {
	ids := make(map[netip.AddrPort]netip.Addr, len(endpoints))
	uses := make(map[netip.Addr]int, len(endpoints))
	keeps := make(map[netip.Addr]netip.AddrPort)
	frontends := make(map[netip.AddrPort]bool)
	for e := range port.Exposures {
		frontends[netip.AddrPortFrom(e.Addr, e.Port)] = true
	}
	for _, e := range endpoints {
		at := e.AddrPort
		uses[at.Addr()]++
		if frontends[at] || frontends[netip.AddrPortFrom(netip.Addr{}, at.Port())] && !keeps[at.Addr()].IsValid() {
			keeps[at.Addr()] = at
		}
	}
	var shared []netip.AddrPort
	for _, e := range endpoints {
		if at := e.AddrPort; uses[at.Addr()] == 1 || keeps[at.Addr()] == at {
			ids[at] = at.Addr()
		} else {
			shared = append(shared, at)
		}
	}
	slices.SortFunc(shared, netip.AddrPort.Compare)
	for _, e := range shared {
		id := hashedID(e)
		for uses[id] > 0 {
			id = id.Next()
		}
		uses[id]++
		ids[e] = id
	}
	return ids
}

// hashedID returns an address of 240.0.0.0/4 (reserved, RFC 1112) or 100::/64 (discard only,
// RFC 6666).
func hashedID(e netip.AddrPort) netip.Addr {
	sum := sha256.Sum256([]byte(e.String()))
	if e.Addr().Is4() {
		return netip.AddrFrom4([4]byte{0xf0 | sum[0]>>4, sum[1], sum[2], sum[3] &^ 0x80})
	}
	id := [16]byte{0: 1}
	copy(id[8:], sum[:8])
	id[15] &^= 0x80 // room for Next
	return netip.AddrFrom16(id)
}

package nftables

import (
	"crypto/sha256"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/nftables/slots"
	"github.com/sluice-proxy/sluice/service"
)

// A service port with ClientIP affinity has chains and sets of its own:
//
//	external-… ─► service-…, local-… ─► remember-…
//	                 └─ known-… ──────────┘
//
//	clients-…   client ─► endpoint; packets write it, and the kernel forgets
//	slots-…     slot ─► endpoint, for each list of endpoints (Cluster, Local)
//	live-…      the endpoints of the list
//	targets-…   endpoint ─► address and port
//
// The chain of a list looks the client up. If it is known and its endpoint is live, it goes
// there; otherwise a random slot decides. The remember chain notes the choice and translates.
// What a packet passes and what a change writes does not grow with the endpoints, and a
// choice is the same for every frontend. An endpoint that goes leaves its clients behind:
// nothing follows them, and they choose anew.
//
// Rules hand the endpoint on in the packet's destination address, which is about to be
// replaced anyway, because nft 1.0.6 aborts at a rule in which one look-up feeds another
// (docs/adr/0033-affinity.md). So a packet that has entered such a chain never leaves it
// untranslated.

// affinityDraft renders the affinity of one service port.
type affinityDraft struct {
	*portDraft
	// ids are what stands for each endpoint.
	ids map[netip.AddrPort]netip.Addr
}

func (p *portDraft) renderAffinity() {
	if !p.sticky() {
		return
	}
	targets := externalTargets{
		policyLocal: p.port.ExternalLocal, guarded: len(p.port.SourceRanges) > 0, nodePort: p.port.NodePort != 0,
	}
	if endpoints := p.port.Reachable(); len(endpoints) > 0 {
		a := &affinityDraft{p, endpointIDs(endpoints)}
		a.renderMemory(endpoints)
		targets.cluster = a.renderList(prefixServiceChain+p.base, p.port.Cluster)
		if p.port.UsesLocal() {
			local := a.renderList(prefixLocalChain+p.base, p.port.Local)
			if p.port.ExternalLocal {
				targets.local = local
			}
		}
	}
	if p.port.ExternallyAccessible() && p.port.HasAny {
		external := newChain(prefixExternalChain + p.base)
		targets.fill(external, p.r, p.facts.Detect[p.r.d.family])
		p.own(external.object())
	}
}

// renderMemory renders what all lists of the port share: the memory, and the chain that
// writes it and sends the packet to the endpoint in its destination address.
func (a *affinityDraft) renderMemory(endpoints []service.Endpoint) {
	d := a.r.d
	clients, targets := clientsMap(a.base), targetsMap(a.base)
	translate := newRule(d).meta(unix.NFT_META_L4PROTO).cmp([]byte{a.port.Protocol.Number()}, false)
	out := newChain(prefixRememberChain+a.base).needs(setID(clients.name), setID(targets.name)).
		add(newRule(d).remember(clients.name, uint64(a.port.AffinitySeconds)*1000)).
		add(translate.fields([]field{fieldDaddr}).dnatBy(targets.name)). // nft -f wants a protocol
		add(newRule(d).drop())
	a.own(clients.object(d), targets.object(d), out.object())
	for _, e := range endpoints {
		key := a.put(func(b []byte) []byte { return appendAddr(b, a.ids[e.AddrPort]) })
		body := a.put(func(b []byte) []byte {
			return appendData(b, appendPort(appendAddr(nil, e.AddrPort.Addr()), e.AddrPort.Port()))
		})
		a.elementOf(targets, key, body)
	}
}

// renderList renders the choice among some endpoints of the port and returns its chain, or ""
// if there are none.
func (a *affinityDraft) renderList(name string, endpoints []service.Endpoint) string {
	if len(endpoints) == 0 {
		return ""
	}
	d := a.r.d
	clients, remember := clientsMap(a.base).name, prefixRememberChain+a.base
	live, slotted := liveSet(name), slotsMap(name)
	known := newChain(prefixKnownChain+name).needs(setID(clients), setID(live.name), chainID(remember)).
		add(newRule(d).fields([]field{fieldDaddr}).in(live.name, false).goTo(remember)).
		add(newRule(d).forget(clients)) // an update would keep the endpoint that has gone
	out := newChain(name).needs(setID(clients), setID(slotted.name), chainID(known.name), chainID(remember)).
		add(newRule(d).fields([]field{fieldSaddr}).readdress(clients).jump(known.name))
	for _, modulus := range moduli(slots.Size(len(endpoints))) {
		out.add(newRule(d).numgen(modulus).readdress(slotted.name).goTo(remember))
	}
	a.own(live.object(d), slotted.object(d), known.object(), out.object())
	for i, slot := range slots.Assign(endpoints) {
		id := appendAddr(nil, a.ids[endpoints[i].AddrPort])
		a.elementOf(live, a.put(func(b []byte) []byte { return append(b, id...) }), span{})
		a.elementOf(slotted, a.put(func(b []byte) []byte { return appendSlot(b, slot) }),
			a.put(func(b []byte) []byte { return appendData(b, id) }))
	}
	return name
}

// elementOf adds an element of a set of the port's own.
func (a *affinityDraft) elementOf(s set, key, body span) {
	a.element(containerOf(s.name), key, body, []dataplane.ID{setID(s.name)})
}

// endpointIDs returns what stands for each endpoint of a service port, in the kernel's memory
// and in packets between two rules: its address, unless another endpoint has the same one.
// Then it is an address made of the endpoint's hash, in a range that no packet is sent to.
func endpointIDs(endpoints []service.Endpoint) map[netip.AddrPort]netip.Addr {
	ids := make(map[netip.AddrPort]netip.Addr, len(endpoints))
	uses := make(map[netip.Addr]int, len(endpoints))
	for _, e := range endpoints {
		uses[e.AddrPort.Addr()]++
	}
	var shared []netip.AddrPort
	for _, e := range endpoints {
		if uses[e.AddrPort.Addr()] == 1 {
			ids[e.AddrPort] = e.AddrPort.Addr()
		} else {
			shared = append(shared, e.AddrPort)
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

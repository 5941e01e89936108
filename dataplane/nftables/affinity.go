package nftables

import (
	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// renderAffinity renders the chains of a port with ClientIP affinity:
//
//	external-… ─► service-…, local-… ─► endpoint-…
//
// A chain of endpoints first looks for the client in the set clients-… of each endpoint, and
// otherwise picks one by the map picks-…. The choice is the same for every frontend, and
// stays whatever happens to other endpoints.
func (p *portDraft) renderAffinity() {
	if !p.sticky() {
		return
	}
	for _, e := range p.port.Reachable() {
		p.renderEndpointChain(e)
	}
	targets := externalTargets{policyLocal: p.port.ExternalLocal}
	if len(p.port.Cluster) > 0 {
		targets.cluster = prefixServiceChain + p.base
		p.renderStickyChain(targets.cluster, p.port.Cluster)
	}
	if p.port.UsesLocal() && len(p.port.Local) > 0 {
		name := prefixLocalChain + p.base
		p.renderStickyChain(name, p.port.Local)
		if p.port.ExternalLocal {
			targets.local = name
		}
	}
	if p.port.ExternallyAccessible() && p.port.HasAny {
		external := newChain(prefixExternalChain + p.base)
		targets.fill(external, p.r, p.facts.Detect[p.r.d.family])
		p.own(external.object())
	}
}

// renderEndpointChain renders the chain that remembers a client and sends it to an endpoint.
func (p *portDraft) renderEndpointChain(e service.Endpoint) {
	d := p.r.d
	base := endpointBase(p.key, p.port, e)
	clients := clientsSet(base)
	out := newChain(prefixEndpointChain + base).needs(setID(clients.name)).
		add(newRule(d).remember(clients.name, uint64(p.port.AffinitySeconds)*1000)).
		add(newRule(d).meta(unix.NFT_META_L4PROTO).cmp([]byte{p.port.Protocol.Number()}, false).dnatTo(e.AddrPort))
	p.own(clients.object(d), out.object())
}

// renderStickyChain renders the choice among some endpoints of the port.
func (p *portDraft) renderStickyChain(name string, endpoints []service.Endpoint) {
	d := p.r.d
	picks := picksMap(name)
	out := newChain(name).needs(setID(picks.name))
	container, refs := elementsOf+picks.name, []dataplane.ID{setID(picks.name)}
	table := p.table(endpoints)
	for i, e := range endpoints {
		base := endpointBase(p.key, p.port, e)
		target := prefixEndpointChain + base
		out.needs(chainID(target), setID(prefixClientsSet+base)).
			add(newRule(d).fields([]field{fieldSaddr}).in(prefixClientsSet+base, false).goTo(target))
		key := p.put(func(b []byte) []byte { return appendSlot(b, table.slots[i]) })
		body := p.put(func(b []byte) []byte { return appendGoto(b, target) })
		p.element(container, key, body, append([]dataplane.ID{chainID(target)}, refs...))
	}
	for _, modulus := range moduli(table.size) {
		out.add(newRule(d).numgen(modulus).vmap(picks.name))
	}
	p.own(picks.object(d), out.object())
}

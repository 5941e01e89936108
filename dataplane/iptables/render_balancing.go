package iptables

import (
	"strconv"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/iptables/dispatch"
	"github.com/sluice-proxy/sluice/service"
)

// renderBalancing makes the chains that choose an endpoint.
func (p *portDraft) renderBalancing() {
	sticky := p.AffinitySeconds > 0
	if p.hasCluster() {
		p.renderPolicy(p.cluster, p.Cluster, !p.InternalLocal, sticky)
	}
	if p.hasLocal() {
		p.renderPolicy(p.local, p.Local, p.InternalLocal, sticky)
	}
	if !sticky {
		return
	}
	for _, e := range p.Reachable() {
		p.renderSticky(e)
	}
}

// renderPolicy makes the chain of one traffic policy. internal tells that
// ClusterIP traffic enters here, too.
func (p *portDraft) renderPolicy(name string, endpoints []service.Endpoint, internal, sticky bool) {
	p.begin()
	var refs []dataplane.ID
	if internal {
		refs = p.masqueradeInternal()
	}
	if sticky {
		refs = p.balanceSticky(endpoints, refs)
	} else {
		p.balance(endpoints)
	}
	p.endChain(name, refs...)
}

// masqueradeInternal marks ClusterIP traffic that would be answered past this
// node. The destination keeps external traffic, which passes the same chain, out
// of it.
func (p *portDraft) masqueradeInternal() []dataplane.ID {
	match, ok := p.notFromLocalPod()
	if p.facts.MasqueradeAll {
		match, ok = rule{}, true
	}
	if !ok {
		return nil
	}
	r := p.frontend(p.ClusterIP, afterClusterIP)
	r.source, r.input = match.source, match.input
	r.target = chainMarkMasq
	p.rule(r)
	return []dataplane.ID{natChain(chainMarkMasq)}
}

// balance writes one DNAT rule per endpoint. Rule i of n is taken with the
// probability 1/(n-i), which makes all equal.
func (p *portDraft) balance(endpoints []service.Endpoint) {
	for i, e := range endpoints {
		p.line()
		p.text = append(append(p.text, "-p "...), p.protocol...)
		p.text = append(p.text, ' ')
		p.chance(len(endpoints) - i)
		p.translate(e)
	}
}

// chance appends the match that holds for one in k packets.
func (p *portDraft) chance(k int) {
	if k == 1 {
		return
	}
	p.text = append(p.text, "-m statistic --mode random --probability "...)
	p.text = append(appendProbability(p.text, k), ' ')
}

// translate appends the target that sends to an endpoint.
func (p *portDraft) translate(e service.Endpoint) {
	p.text = append(p.text, "-j DNAT --to-destination "...)
	if e.AddrPort.Addr().Is6() {
		p.text = append(p.text, '[')
		p.text = append(dispatch.AppendAddr(p.text, e.AddrPort.Addr()), ']')
	} else {
		p.text = e.AddrPort.Addr().AppendTo(p.text)
	}
	p.text = append(p.text, ':')
	p.text = strconv.AppendUint(p.text, uint64(e.AddrPort.Port()), 10)
}

// balanceSticky sends a client back to the endpoint that remembers it, and
// chooses one for everybody else.
func (p *portDraft) balanceSticky(endpoints []service.Endpoint, refs []dataplane.ID) []dataplane.ID {
	names := make([]string, len(endpoints))
	for i, e := range endpoints {
		names[i] = p.endpointChain(e)
		refs = append(refs, natChain(names[i]))
		p.line()
		p.text = append(p.text, "-m recent --rcheck --seconds "...)
		p.text = strconv.AppendInt(p.text, int64(p.AffinitySeconds), 10)
		p.recentList(" --reap", names[i])
		p.text = append(append(p.text, "-j "...), names[i]...)
	}
	for i, name := range names {
		p.line()
		p.chance(len(names) - i)
		p.text = append(append(p.text, "-j "...), name...)
	}
	return refs
}

// renderSticky makes the chain of one endpoint, which renews the memory of the
// client with each new connection. The list is shared by all frontends and both
// traffic policies of the port.
func (p *portDraft) renderSticky(e service.Endpoint) {
	name := p.endpointChain(e)
	p.begin()
	p.text = append(append(p.text, "-p "...), p.protocol...)
	p.recentList(" -m recent --set", name)
	p.translate(e)
	p.endChain(name)
}

// recentList appends the end of a recent match on the list of an endpoint.
func (p *portDraft) recentList(action, name string) {
	p.text = append(append(p.text, action...), " --name "...)
	p.text = append(append(p.text, name...), " --mask "...)
	p.text = append(append(p.text, p.renderer.recentMask...), " --rsource "...)
}

func (p *portDraft) endpointChain(e service.Endpoint) string {
	return prefixEndpoint + endpointHash(p.subject, p.Protocol, e.AddrPort)
}

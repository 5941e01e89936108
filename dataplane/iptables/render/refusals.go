// SPDX-License-Identifier: Apache-2.0

package render

import (
	"net/netip"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/iptables/tree"
	"github.com/sluice-proxy/sluice/service"
)

// renderRejections stops, in table filter, what nat has not translated: traffic to frontends
// without endpoints, from denied sources, and load balancer traffic that the source ranges did not admit.
func (p *portDraft) renderRejections() {
	if refused, ok := p.refusal(); ok && !p.ServesInternal() && p.ClusterIP.IsValid() {
		r := p.frontend(p.ClusterIP, "")
		r.comment, r.target = refused.comment, refused.target
		p.element(filterServices, p.key(p.ClusterIP), r)
	}
	p.rejectExternal()
	if !p.filtered() || !p.ServesExternal() && p.Unserved() != service.NoEndpointsDrop {
		return // the source ranges limit access to endpoints, and there is none
	}
	for _, addr := range p.LoadBalancerVIPs {
		r := p.frontend(addr, " traffic not accepted by "+p.ranges)
		r.target = "DROP"
		p.element(filterFirewall, p.key(addr), r)
	}
}

// refusal returns the comment and the target of a rule for frontends without endpoints; false if their packets pass.
func (p *portDraft) refusal() (r rule, ok bool) {
	r.comment = p.about(" has no endpoints")
	if p.HasAny {
		r.comment = p.about(" has no local endpoints")
	}
	switch p.Unserved() {
	case service.NoEndpointsPass:
		return rule{}, false
	case service.NoEndpointsDrop:
		r.target = "DROP"
	default:
		r.target = p.renderer.reject
	}
	return r, true
}

// rejectExternal refuses packets to all frontends but the ClusterIP. A separate chain drops denied sources; it
// refuses other sources only if there is no endpoint.
func (p *portDraft) rejectExternal() {
	refused, ok := p.refusal()
	ok = ok && !p.ServesExternal()
	var refs []dataplane.ID
	switch {
	case len(p.DenyRanges) > 0 && p.ExternallyAccessible():
		denied := ChainID(Filter, p.external)
		p.begin()
		p.sources(p.DenyRanges, "DROP")
		if ok {
			p.rule(refused)
		}
		p.end(denied)
		refused, refs = rule{comment: p.about(" denied sources"), target: p.external}, []dataplane.ID{denied}
	case !ok:
		return
	}
	at := func(container tree.Container, key string, match rule) {
		match.comment, match.target = refused.comment, refused.target
		p.element(container, key, match, refs...)
	}
	for _, addrs := range [][]netip.Addr{p.ExternalIPs, p.LoadBalancerVIPs} {
		for _, addr := range addrs {
			at(filterExternal, p.key(addr), p.frontend(addr, ""))
		}
	}
	if p.NodePort != 0 {
		at(filterNodePorts, p.nodePortKey(), p.renderer.rejectedNodePort(p.facts, p.protocol, p.NodePort))
	}
}

// sources adds a rule for each range of sources.
func (p *portDraft) sources(ranges []netip.Prefix, target string) {
	for _, prefix := range ranges {
		r := rule{source: addrMatch{prefix: prefix}, target: target}
		if prefix.Bits() == 0 {
			r.source = addrMatch{} // the tools do not print a match of length 0
		}
		p.rule(r)
	}
}

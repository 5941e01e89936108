// SPDX-License-Identifier: Apache-2.0

package render

import (
	"net/netip"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// renderRejections stops, in table filter, what nat has not translated: traffic to frontends
// without endpoints, from denied sources, and load balancer traffic that the source ranges did not admit. A separate
// chain drops denied sources; it refuses other sources only if there is no endpoint.
func (p *portDraft) renderRejections() {
	denied := false
	for e := range p.Exposures {
		refused, ok := p.refusal(e)
		var refs []dataplane.ID
		if len(e.Denied) > 0 {
			refs = []dataplane.ID{ChainID(Filter, p.external)}
			if !denied {
				denied = true
				p.renderDenied(e, refs[0])
			}
			refused, ok = rule{comment: p.about(" denied sources"), target: p.external}, true
		}
		container, r := filterExternal, p.frontend(e.Frontend)
		switch e.Kind {
		case service.ClusterIP:
			container = filterServices
		case service.NodePort:
			container, r = filterNodePorts, p.renderer.rejectedNodePort(p.facts, p.protocol, e.Port)
		}
		if r.comment, r.target = refused.comment, refused.target; ok {
			p.element(container, p.key(e.Frontend), r, refs...)
		}
		// Source ranges limit access to endpoints. Without any, they matter only where packets are dropped anyway.
		if e.Kind == service.LoadBalancerIP && p.filtered() && (e.Refusal == service.NoEndpointsDefault || e.Refusal == service.NoEndpointsDrop) {
			r = p.frontend(e.Frontend)
			r.comment, r.target = p.about(" traffic not accepted by "+p.ranges), "DROP"
			p.element(filterFirewall, p.key(e.Frontend), r)
		}
	}
}

// renderDenied makes the chain of denied sources.
func (p *portDraft) renderDenied(e *service.Exposure, chain dataplane.ID) {
	p.begin()
	p.sources(e.Denied, "DROP")
	if refused, ok := p.refusal(e); ok {
		p.rule(refused)
	}
	p.end(chain)
}

// refusal returns the comment and the target of a rule for a frontend without endpoints. It returns false if an
// endpoint serves the frontend, or if the Service lets packets without an endpoint pass.
func (p *portDraft) refusal(e *service.Exposure) (r rule, ok bool) {
	r.comment = p.about(" has no endpoints")
	if p.HasAny {
		r.comment = p.about(" has no local endpoints")
	}
	switch e.Refusal {
	case service.NoEndpointsDefault, service.NoEndpointsPass:
		return rule{}, false
	case service.NoEndpointsDrop:
		r.target = "DROP"
	default:
		r.target = p.renderer.reject
	}
	return r, true
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

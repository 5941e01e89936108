// SPDX-License-Identifier: Apache-2.0

package render

import (
	"strconv"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/iptables/rules"
	"github.com/sluice-proxy/sluice/dataplane/iptables/tree"
	"github.com/sluice-proxy/sluice/service"
)

// afters end the comments of rules about a frontend.
var afters = [...]string{
	service.ClusterIP: " cluster IP", service.NodePort: "", service.ExternalIP: " external IP", service.LoadBalancerIP: " loadbalancer IP",
}

const aroundExternal = " external destinations"

// renderDispatch leads the frontends that have endpoints to the port's chains.
func (p *portDraft) renderDispatch() {
	if !p.HasAny {
		return
	}
	for e := range p.Exposures {
		target, container := p.external, natServices
		switch {
		case e.Kind == service.ClusterIP && e.Refusal != service.NoEndpointsDefault:
			continue
		case e.Kind == service.ClusterIP && e.Local:
			target = p.local
		case e.Kind == service.ClusterIP:
			target = p.cluster
		case e.Kind == service.LoadBalancerIP && len(e.Allowed) > 0: // as an external IP, the address is not limited
			target = p.ranges
		case e.Kind == service.NodePort:
			container = natNodePorts
		}
		r := p.frontend(e.Frontend)
		r.comment, r.target = p.about(afters[e.Kind]), target
		p.element(container, p.key(e.Frontend), r, natChain(target))
	}
}

// renderExternal makes the chains that external traffic enters.
func (p *portDraft) renderExternal() {
	if !p.HasAny || !p.ExternallyAccessible() {
		return
	}
	p.begin()
	p.sources(p.DenyRanges, "RETURN") // table filter drops what is not translated; see refusals.go
	p.accountLocalhost()
	var refs []dataplane.ID
	if p.ExternalLocal {
		refs = p.externalLocal()
	} else {
		refs = p.externalCluster()
	}
	p.endChain(p.external, refs...)
	if p.filtered() {
		p.renderSourceRanges()
	}
}

// accountLocalhost counts connections to the node port on localhost. No other frontend of this
// chain has a loopback address.
func (p *portDraft) accountLocalhost() {
	if p.NodePort != 0 && p.renderer.options.Accounting && p.renderer.localhostNodePorts(p.facts) {
		p.rule(rule{destination: addrMatch{prefix: loopback4}, match: AccountMatch(AccountLocalhost)})
	}
}

// externalCluster masquerades everything, because an endpoint on another node would answer the
// client directly.
func (p *portDraft) externalCluster() []dataplane.ID {
	p.rule(rule{comment: comment{"masquerade traffic for ", p.subject, aroundExternal}, target: ChainMarkMasq})
	refs := []dataplane.ID{natChain(ChainMarkMasq)}
	if p.hasCluster() {
		p.rule(rule{target: p.cluster})
		refs = append(refs, natChain(p.cluster))
	}
	return refs
}

// externalLocal keeps the client's address and uses only local endpoints. Pods and this node's
// own processes may use all endpoints: a load balancer would have sent them to a node that has
// some.
func (p *portDraft) externalLocal() []dataplane.ID {
	refs := []dataplane.ID{natChain(ChainMarkMasq)}
	if p.hasCluster() {
		refs = append(refs, natChain(p.cluster))
		if pods, ok := p.fromLocalPod(); ok {
			pods.comment = comment{"pod traffic for ", p.subject, aroundExternal}
			pods.target = p.cluster
			p.rule(pods)
		}
	}
	const fromNode = "-m addrtype --src-type LOCAL"
	p.rule(rule{
		comment: comment{"masquerade LOCAL traffic for ", p.subject, aroundExternal},
		match:   fromNode, target: ChainMarkMasq,
	})
	if p.hasCluster() {
		p.rule(rule{
			comment: comment{"route LOCAL traffic for ", p.subject, aroundExternal},
			match:   fromNode, target: p.cluster,
		})
	}
	if p.hasLocal() {
		p.rule(rule{target: p.local})
		refs = append(refs, natChain(p.local))
	}
	return refs
}

// renderSourceRanges makes the chain that admits load balancer traffic. A packet that reaches
// its end is not translated, and KUBE-PROXY-FIREWALL drops it.
func (p *portDraft) renderSourceRanges() {
	p.begin()
	for _, prefix := range p.AllowedSources() {
		p.rule(rule{source: addrMatch{prefix: prefix}, comment: p.about(afters[service.LoadBalancerIP]), target: p.external})
	}
	p.rule(rule{comment: comment{"other traffic to ", p.subject, " will be dropped by " + ChainProxyFirewall}})
	p.endChain(p.ranges, natChain(p.external))
}

// renderBalancing makes the chains that choose an endpoint.
func (p *portDraft) renderBalancing() {
	sticky := p.AffinitySeconds > 0
	if p.hasCluster() {
		p.renderPolicy(p.cluster, p.Cluster, !p.InternalLocal, sticky)
	}
	if p.hasLocal() {
		p.renderPolicy(p.local, p.Local, p.InternalLocal, sticky)
	}
	if sticky {
		for _, e := range p.Reachable() {
			p.renderSticky(e)
		}
	}
}

// renderPolicy makes the chain of one traffic policy. internal means that ClusterIP traffic
// enters this chain as well.
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

// masqueradeInternal marks ClusterIP traffic whose answer would bypass this node. External
// traffic passes the same chain; matching the destination excludes it.
func (p *portDraft) masqueradeInternal() []dataplane.ID {
	if !p.ClusterIP.IsValid() {
		return nil
	}
	match, ok := p.notFromLocalPod()
	if p.facts.MasqueradeAll {
		match, ok = rule{}, true
	}
	if !ok {
		return nil
	}
	r := p.frontend(service.Frontend{Addr: p.ClusterIP, Port: p.Port, Protocol: p.Protocol})
	r.comment, r.source, r.input, r.target = p.about(afters[service.ClusterIP]), match.source, match.input, ChainMarkMasq
	p.rule(r)
	return []dataplane.ID{natChain(ChainMarkMasq)}
}

// balance writes one DNAT rule per endpoint. A rule matches with the probability of its endpoint's share divided by the
// sum of the shares of this and all later endpoints, so each endpoint gets its share.
func (p *portDraft) balance(endpoints []service.Endpoint) {
	left := service.TotalShare(endpoints)
	for _, e := range endpoints {
		p.line()
		p.text = append(append(p.text, "-p "...), p.protocol...)
		p.text = append(p.text, ' ')
		left = p.chance(e, left)
		p.translate(e)
	}
}

// chance appends the match for an endpoint's share of the sum left, and returns the sum left for later endpoints.
func (p *portDraft) chance(e service.Endpoint, left int) int {
	share := e.Share()
	if share < left {
		p.text = append(p.text, "-m statistic --mode random --probability "...)
		p.text = append(appendProbability(p.text, share, left), ' ')
	}
	return left - share
}

// toDestination goes before the endpoint of a rule.
const toDestination = "-j DNAT --to-destination "

// translate appends the target for an endpoint.
func (p *portDraft) translate(e service.Endpoint) {
	p.text = append(p.text, toDestination...)
	if e.AddrPort.Addr().Is6() {
		p.text = append(p.text, '[')
		p.text = append(rules.AppendAddr(p.text, e.AddrPort.Addr()), ']')
	} else {
		p.text = e.AddrPort.Addr().AppendTo(p.text)
	}
	p.text = append(p.text, ':')
	p.text = strconv.AppendUint(p.text, uint64(e.AddrPort.Port()), 10)
}

// balanceSticky sends a client back to the endpoint that remembers it, and chooses an endpoint
// for every other client.
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
	left := service.TotalShare(endpoints)
	for i, name := range names {
		p.line()
		left = p.chance(endpoints[i], left)
		p.text = append(append(p.text, "-j "...), name...)
	}
	return refs
}

// renderSticky makes the chain of one endpoint. Each new connection renews the endpoint's
// memory of the client. All frontends and both traffic policies of the port share the list.
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

// renderHairpins masquerades connections of endpoints to themselves. Otherwise an endpoint would
// see a packet from its own address and answer locally, where nothing undoes the translation.
// Such connections are possible for endpoints on this node and, with externalTrafficPolicy Local,
// for all endpoints: pods of other nodes that enter through this node keep their address. The rules
// name no Service, so Services with common endpoints make equal claims.
func (p *portDraft) renderHairpins() {
	everywhere := p.ExternalLocal && p.ExternallyAccessible()
	for _, e := range p.Reachable() {
		if !e.Local && !everywhere {
			continue
		}
		self := host(e.AddrPort.Addr())
		p.element(natHairpin, tree.SourceKey(e.AddrPort.Addr()), rule{
			source: self, destination: self, target: ChainMarkMasq,
		}, natChain(ChainMarkMasq))
	}
}

// fromLocalPod returns a rule, without comment and target, that matches what local pods send.
// It reports false if detect-local is not configured.
func (p *portDraft) fromLocalPod() (rule, bool) {
	detect := p.facts.Detect[p.renderer.family]
	switch {
	case detect.CIDR.IsValid() && detect.CIDR.Bits() == 0:
		// Every sender is a pod. The tools do not print a match of length 0.
		return rule{}, true
	case detect.CIDR.IsValid():
		return rule{source: addrMatch{prefix: detect.CIDR}}, true
	case detect.Interface != "":
		return rule{input: inputMatch{name: detect.Interface}}, true
	default:
		return rule{}, false
	}
}

// notFromLocalPod is fromLocalPod with a negated match. It reports false if detect-local is not
// configured, or if every sender is a pod.
func (p *portDraft) notFromLocalPod() (rule, bool) {
	match, ok := p.fromLocalPod()
	if !ok || match == (rule{}) {
		return rule{}, false
	}
	match.source.not = match.source.prefix.IsValid()
	match.input.not = match.input.name != ""
	return match, true
}

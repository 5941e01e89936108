package iptables

import "github.com/sluice-proxy/sluice/dataplane"

const aroundExternal = " external destinations"

// renderExternal makes the chains that external traffic enters.
func (p *portDraft) renderExternal() {
	if !p.HasAny || !p.ExternallyAccessible() {
		return
	}
	p.begin()
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

// externalCluster masquerades everything, since an endpoint on another node
// would answer past this one.
func (p *portDraft) externalCluster() []dataplane.ID {
	p.rule(rule{
		comment: comment{"masquerade traffic for ", p.subject, aroundExternal},
		target:  chainMarkMasq,
	})
	refs := []dataplane.ID{natChain(chainMarkMasq)}
	if p.hasCluster() {
		p.rule(rule{target: p.cluster})
		refs = append(refs, natChain(p.cluster))
	}
	return refs
}

// externalLocal keeps the client's address, and sends on to local endpoints
// alone. Pods and this node's own processes are short-circuited to all endpoints:
// a load balancer would have brought them to a node that has some.
func (p *portDraft) externalLocal() []dataplane.ID {
	refs := []dataplane.ID{natChain(chainMarkMasq)}
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
		match:   fromNode,
		target:  chainMarkMasq,
	})
	if p.hasCluster() {
		p.rule(rule{
			comment: comment{"route LOCAL traffic for ", p.subject, aroundExternal},
			match:   fromNode,
			target:  p.cluster,
		})
	}
	if p.hasLocal() {
		p.rule(rule{target: p.local})
		refs = append(refs, natChain(p.local))
	}
	return refs
}

// renderSourceRanges makes the chain that admits load balancer traffic. What
// falls off its end is not translated, and is dropped by KUBE-PROXY-FIREWALL.
func (p *portDraft) renderSourceRanges() {
	p.begin()
	for _, prefix := range p.SourceRanges {
		p.rule(p.admit(addrMatch{prefix: prefix}))
	}
	if p.NodeInSourceRanges {
		// Where the VIP is bound to this node, its processes use it as their
		// source address.
		for _, addr := range p.LoadBalancerVIPs {
			p.rule(p.admit(host(addr)))
		}
	}
	p.rule(rule{
		comment: comment{"other traffic to ", p.subject, " will be dropped by " + chainProxyFirewall},
	})
	p.endChain(p.ranges, natChain(p.external))
}

func (p *portDraft) admit(source addrMatch) rule {
	return rule{source: source, comment: p.about(afterLoadBalancer), target: p.external}
}

package iptables

// renderRefusals stops, in table filter, what nat has not translated: traffic to
// frontends without endpoints, and load balancer traffic that the source ranges
// did not admit.
func (p *portDraft) renderRefusals() {
	if !p.ServesInternal() {
		r := p.refuse(p.frontend(p.ClusterIP, ""))
		p.element(filterServices, p.key(p.ClusterIP), r)
	}
	if !p.ServesExternal() {
		p.refuseExternal()
	}
	if !p.filtered() {
		return
	}
	for _, addr := range p.LoadBalancerVIPs {
		r := p.frontend(addr, " traffic not accepted by "+p.ranges)
		r.target = "DROP"
		p.element(filterFirewall, p.key(addr), r)
	}
}

func (p *portDraft) refuseExternal() {
	for _, addr := range p.ExternalIPs {
		p.element(filterExternal, p.key(addr), p.refuse(p.frontend(addr, "")))
	}
	for _, addr := range p.LoadBalancerVIPs {
		p.element(filterExternal, p.key(addr), p.refuse(p.frontend(addr, "")))
	}
	if p.NodePort != 0 {
		// The jump to this container already holds the addresses.
		p.element(filterNodePorts, p.nodePortKey(), p.refuse(rule{protocol: p.protocol, port: p.NodePort}))
	}
}

// refuse rejects when no endpoint is usable anywhere, and drops when there are
// some, only not on this node: the sender is then to try another node, not to give
// up.
func (p *portDraft) refuse(r rule) rule {
	if p.HasAny {
		r.comment, r.target = p.about(" has no local endpoints"), "DROP"
	} else {
		r.comment, r.target = p.about(" has no endpoints"), p.renderer.reject
	}
	return r
}

package iptables

const (
	afterClusterIP    = " cluster IP"
	afterExternalIP   = " external IP"
	afterLoadBalancer = " loadbalancer IP"
)

// renderDispatch leads the frontends that have endpoints to the port's chains.
func (p *portDraft) renderDispatch() {
	if p.ServesInternal() {
		r := p.frontend(p.ClusterIP, afterClusterIP)
		r.target = p.internal()
		p.element(natServices, p.key(p.ClusterIP), r, natChain(r.target))
	}
	if !p.HasAny {
		return
	}
	for _, addr := range p.ExternalIPs {
		r := p.frontend(addr, afterExternalIP)
		r.target = p.external
		p.element(natServices, p.key(addr), r, natChain(r.target))
	}
	for _, addr := range p.LoadBalancerVIPs {
		r := p.frontend(addr, afterLoadBalancer)
		r.target = p.external
		if p.filtered() {
			r.target = p.ranges
		}
		p.element(natServices, p.key(addr), r, natChain(r.target))
	}
	if p.NodePort != 0 {
		p.element(natNodePorts, p.nodePortKey(), rule{
			protocol: p.protocol,
			port:     p.NodePort,
			comment:  p.about(""),
			target:   p.external,
		}, natChain(p.external))
	}
}

// internal is the chain that ClusterIP traffic enters.
func (p *portDraft) internal() string {
	if p.InternalLocal {
		return p.local
	}
	return p.cluster
}

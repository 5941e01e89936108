package iptables

import (
	"net/netip"

	"github.com/sluice-proxy/sluice/dataplane/iptables/dispatch"
	"github.com/sluice-proxy/sluice/service"
)

// portDraft renders one service port into a draft. The methods that begin with
// "render" add objects; each is one aspect and reads nothing that another wrote.
type portDraft struct {
	*draft
	*service.PortView
	renderer *Renderer
	facts    *service.NodeFacts
	// subject names the port in comments, for example "ns1/svc1:p80".
	subject  string
	protocol string
	// The names of the port's chains; not all of them exist.
	cluster, local, external, ranges string
}

func newPortDraft(d *draft, r *Renderer, facts *service.NodeFacts, key service.Key, port *service.PortView) portDraft {
	subject := key.PortString(port.Name)
	hash := portHash(subject, port.Protocol)
	return portDraft{
		draft: d, PortView: port, renderer: r, facts: facts,
		subject:  subject,
		protocol: port.Protocol.String(),
		cluster:  prefixCluster + hash,
		local:    prefixLocal + hash,
		external: prefixExternal + hash,
		ranges:   prefixSourceRanges + hash,
	}
}

// hasCluster and hasLocal tell whether the balancing chains exist.
func (p *portDraft) hasCluster() bool { return p.UsesCluster() && len(p.Cluster) > 0 }
func (p *portDraft) hasLocal() bool   { return p.UsesLocal() && len(p.Local) > 0 }

// filtered tells whether load balancer traffic passes the source ranges.
func (p *portDraft) filtered() bool {
	return p.HasAny && len(p.LoadBalancerVIPs) > 0 && len(p.SourceRanges) > 0
}

// frontend matches the port at one of its addresses.
func (p *portDraft) frontend(addr netip.Addr, after string) rule {
	return rule{
		destination: host(addr),
		protocol:    p.protocol,
		port:        p.Port,
		comment:     p.about(after),
	}
}

func (p *portDraft) key(addr netip.Addr) string {
	return dispatch.DestinationKey(addr, p.Protocol, p.Port)
}

func (p *portDraft) nodePortKey() string {
	return dispatch.PortKey(p.Protocol, p.NodePort)
}

// about is a comment that begins with the name of the port.
func (p *portDraft) about(after string) comment {
	return comment{subject: p.subject, after: after}
}

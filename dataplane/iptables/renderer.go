package iptables

import (
	"fmt"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// Options are the settings that rules depend on and that never change while the
// process runs.
type Options struct {
	// MasqueradeBit is the bit, 0 to 31, of the packet mark that asks for
	// source NAT; kube-proxy's default is 14.
	MasqueradeBit uint
	// RandomFully lets the kernel choose masqueraded source ports at random;
	// needs iptables 1.6.2.
	RandomFully bool
	// InvalidDropOmitted leaves out the rule that drops packets in conntrack
	// state INVALID, because net.netfilter.nf_conntrack_tcp_be_liberal is on.
	InvalidDropOmitted bool
}

// Renderer implements dataplane.Renderer for one family. What it renders is byte
// for byte what iptables-save prints, so that reading back is a comparison of
// texts. It is immutable.
//
// A Service is, per port:
//
//	nat/KUBE-SERVICES     one element per ClusterIP, external IP, load balancer VIP
//	nat/KUBE-NODEPORTS    one element per node port
//	KUBE-FW-H ─► KUBE-EXT-H ─► KUBE-SVC-H or KUBE-SVL-H: one DNAT rule per endpoint
//	nat/KUBE-SVC-HAIRPIN  one element per endpoint that may reach itself
//	filter/…              one element per frontend that is refused
//
// H is portHash. With ClientIP affinity, the DNAT rules move into chains of their
// own, KUBE-SEP-HE, which remember the client.
type Renderer struct {
	family  service.Family
	options Options
	// mark is "0x4000/0x4000" for bit 14.
	mark string
	// reject is the target that refuses with "port unreachable".
	reject string
	// recentMask is the mask that iptables-save shows for whole addresses.
	recentMask string
}

var _ dataplane.Renderer = (*Renderer)(nil)

// NewRenderer makes a renderer of one family.
func NewRenderer(family service.Family, options Options) *Renderer {
	bit := uint32(1) << options.MasqueradeBit
	r := &Renderer{
		family:     family,
		options:    options,
		mark:       fmt.Sprintf("%#x/%#x", bit, bit),
		reject:     "REJECT --reject-with icmp-port-unreachable",
		recentMask: "255.255.255.255",
	}
	if family == service.IPv6 {
		r.reject = "REJECT --reject-with icmp6-port-unreachable"
		r.recentMask = "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"
	}
	return r
}

// Service renders one Service. Two ports that claim the same element both appear;
// dataplane.NewFragment keeps the first.
func (r *Renderer) Service(view *service.View, facts *service.NodeFacts) []dataplane.Object {
	ports := view.Ports[r.family]
	if len(ports) == 0 {
		return nil
	}
	d := newDraft(ports)
	for i := range ports {
		p := newPortDraft(d, r, facts, view.Key, &ports[i])
		p.renderDispatch()
		p.renderExternal()
		p.renderBalancing()
		p.renderHairpins()
		p.renderRefusals()
	}
	d.renderHealth(view.Key, view.HealthPort(r.family))
	return d.objects
}

// Node renders the scaffold: the fixed chains, the hooks, and the head and tail
// rules of the dispatch chains.
func (r *Renderer) Node(facts *service.NodeFacts) []dataplane.Object {
	objects := r.fixedChains(facts)
	for _, hook := range HookRows() {
		objects = append(objects, hook.Object())
	}
	objects = append(objects, r.nodePortTails(facts)...)
	return append(objects, externalTail())
}

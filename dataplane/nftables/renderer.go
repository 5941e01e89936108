package nftables

import (
	"sync"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// Options are the settings that rules depend on and that never change while the
// process runs.
type Options struct {
	// MasqueradeBit is the bit, 0 to 31, of the packet mark that asks for
	// source NAT; kube-proxy's default is 14.
	MasqueradeBit uint
}

// Renderer implements dataplane.Renderer for one family. The bodies of what it
// renders are the bytes that go to the kernel and come back from it. It keeps
// class chains that it has rendered, which is not seen from outside.
//
// A Service is, per port:
//
//	@frontends            one verdict per ClusterIP, external IP, load balancer VIP
//	@nodeports            one verdict for the node port
//	@cluster-endpoints …  one slot per frontend and endpoint
//	@no-endpoints …       one element per frontend that cannot be served
//	cluster-12 …          the class chains that its verdicts lead to
//	@hairpins             one element per endpoint of this node
//
// With ClientIP affinity, verdicts lead to chains of the Service's own instead,
// and slots lead to chains that remember the client.
type Renderer struct {
	d    *dialect
	mark uint32
	// classes holds what class.render gave, by class.
	classes sync.Map
}

var _ dataplane.Renderer = (*Renderer)(nil)

// NewRenderer makes a renderer of one family.
func NewRenderer(family service.Family, options Options) *Renderer {
	return &Renderer{d: dialects[family], mark: 1 << options.MasqueradeBit}
}

// Service renders one Service. Two ports that claim the same element both appear;
// dataplane.NewFragment keeps the first.
func (r *Renderer) Service(view *service.View, facts *service.NodeFacts) []dataplane.Object {
	ports := view.Ports[r.d.family]
	if len(ports) == 0 {
		return nil
	}
	draft := newDraft()
	for i := range ports {
		p := newPortDraft(draft, r, facts, view.Key, &ports[i])
		p.renderInternal()
		p.renderExternal()
		p.renderFirewall()
		p.renderHairpins()
		p.renderAffinity()
	}
	return draft.objects()
}

// class gives a class chain, and the chains that it leads to.
func (r *Renderer) class(c class) []dataplane.Object {
	if known, ok := r.classes.Load(c); ok {
		return known.([]dataplane.Object)
	}
	known, _ := r.classes.LoadOrStore(c, c.render(r))
	return known.([]dataplane.Object)
}

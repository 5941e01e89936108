// Package iptablestest has the cases that the tests of iptables mode share.
package iptablestest

import (
	"context"
	"net/netip"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/iptables/render"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/rendertest"
)

// Case is one situation in one family, and what to render in it.
type Case struct {
	Name string
	// make returns the view and may change the facts. A nil view renders the scaffold.
	make    func(w rendertest.World, facts *service.NodeFacts) *service.View
	options render.Options
}

// Cases have every feature. The golden files of package render show what they render.
var Cases = []Case{
	{Name: "cluster-ip", make: func(w rendertest.World, _ *service.NodeFacts) *service.View {
		return w.View(w.Port())
	}},
	{Name: "cluster-ip-no-detection", make: func(w rendertest.World, facts *service.NodeFacts) *service.View {
		facts.Detect[w.Family] = service.LocalDetector{}
		return w.View(w.Port())
	}},
	{Name: "cluster-ip-masquerade-all-unnamed-udp", make: func(w rendertest.World, facts *service.NodeFacts) *service.View {
		facts.MasqueradeAll = true
		p := w.Port()
		p.Name, p.Protocol, p.Port = "", service.UDP, 53
		return w.View(p)
	}},
	{Name: "every-sender-is-a-pod", make: func(w rendertest.World, facts *service.NodeFacts) *service.View {
		facts.Detect[w.Family].CIDR = netip.PrefixFrom(w.ClusterIP, 0)
		p := w.OpenPort()
		p.ExternalLocal, p.Local = true, w.Endpoints(1)
		return w.View(p)
	}},
	{Name: "external-cluster", make: func(w rendertest.World, _ *service.NodeFacts) *service.View {
		return w.View(w.OpenPort())
	}},
	{Name: "external-local", make: func(w rendertest.World, _ *service.NodeFacts) *service.View {
		p := w.OpenPort()
		p.ExternalLocal, p.Local = true, w.Endpoints(1)
		view := w.View(p)
		view.HealthCheckNodePort = 32000
		return view
	}},
	{Name: "external-local-by-interface-without-local", make: func(w rendertest.World, facts *service.NodeFacts) *service.View {
		facts.Detect[w.Family] = service.LocalDetector{Interface: "cali+"}
		p := w.OpenPort()
		p.Protocol, p.ExternalLocal = service.SCTP, true
		return w.View(p)
	}},
	{Name: "source-ranges", make: func(w rendertest.World, _ *service.NodeFacts) *service.View {
		p := w.OpenPort()
		p.SourceRanges = []netip.Prefix{w.Allowed, netip.PrefixFrom(w.Node, w.Node.BitLen())}
		p.NodeInSourceRanges = true
		return w.View(p)
	}},
	{Name: "affinity", make: func(w rendertest.World, _ *service.NodeFacts) *service.View {
		p := w.OpenPort()
		// The local endpoint terminates. Only the Local policy uses it.
		p.ExternalLocal, p.Local, p.Cluster = true, w.Endpoints(1), w.Endpoints(3)[1:]
		p.AffinitySeconds = 10800
		return w.View(p)
	}},
	{Name: "internal-local", make: func(w rendertest.World, _ *service.NodeFacts) *service.View {
		p := w.Port()
		p.InternalLocal, p.Cluster, p.Local = true, nil, w.Endpoints(1)
		return w.View(p)
	}},
	{Name: "internal-local-without-local", make: func(w rendertest.World, _ *service.NodeFacts) *service.View {
		p := w.OpenPort()
		p.InternalLocal = true
		return w.View(p)
	}},
	{Name: "no-endpoints", make: func(w rendertest.World, _ *service.NodeFacts) *service.View {
		p := w.OpenPort()
		p.HasAny, p.Cluster = false, nil
		p.SourceRanges = []netip.Prefix{w.Allowed}
		return w.View(p)
	}},
	{Name: "scaffold", make: scaffoldOnly},
	{
		Name: "scaffold-options", make: scaffoldOnly,
		options: render.Options{MasqueradeBit: 5, RandomFully: true, InvalidDropOmitted: true},
	},
	{Name: "scaffold-localhost", make: func(w rendertest.World, facts *service.NodeFacts) *service.View {
		facts.LocalhostNodePorts = true
		return nil
	}},
	{Name: "scaffold-listed-addresses", make: func(w rendertest.World, facts *service.NodeFacts) *service.View {
		facts.NodePorts[w.Family] = service.NodePortAddresses{Addresses: []netip.Addr{w.Node, w.Second, w.Loopback}}
		return nil
	}},
	{Name: "scaffold-listed-localhost", make: func(w rendertest.World, facts *service.NodeFacts) *service.View {
		facts.LocalhostNodePorts = true
		facts.NodePorts[w.Family] = service.NodePortAddresses{Addresses: []netip.Addr{w.Loopback, w.Node}}
		return nil
	}},
}

func scaffoldOnly(rendertest.World, *service.NodeFacts) *service.View { return nil }

// Render returns the objects of a case.
func (c Case) Render(family service.Family) []dataplane.Object {
	options := c.options
	if options == (render.Options{}) {
		options.MasqueradeBit = 14
	}
	w := rendertest.WorldOf(family)
	facts := w.Facts()
	view := c.make(w, facts)
	renderer := render.NewRenderer(family, options)
	if view == nil {
		return renderer.Node(facts)
	}
	return renderer.Service(context.Background(), view, facts)
}

// Package ipvstest has the cases that the tests of IPVS mode share.
package ipvstest

import (
	"context"
	"net/netip"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/ipvs/render"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/rendertest"
)

// Case is one situation in one family, and what to render in it.
type Case struct {
	Name string
	// make returns the view and may change the facts. A nil view renders the
	// scaffold.
	make    func(w rendertest.World, facts *service.NodeFacts) *service.View
	options render.Options
}

// Cases have every feature. The golden files of package render show what they render.
var Cases = []Case{
	{Name: "cluster-ip", make: func(w rendertest.World, _ *service.NodeFacts) *service.View {
		return w.View(w.Port())
	}},
	{Name: "cluster-ip-unnamed-udp", make: func(w rendertest.World, _ *service.NodeFacts) *service.View {
		p := w.Port()
		p.Name, p.Protocol, p.Port = "", service.UDP, 53
		// Only TCP drains.
		p.Cluster, p.Draining = w.Endpoints(1), w.Endpoints(2)[1:]
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
	{Name: "external-local-without-local-sctp", make: func(w rendertest.World, _ *service.NodeFacts) *service.View {
		p := w.OpenPort()
		p.Protocol, p.ExternalLocal, p.Cluster = service.SCTP, true, w.Endpoints(3)[1:]
		return w.View(p)
	}},
	{Name: "external-node-address", make: func(w rendertest.World, facts *service.NodeFacts) *service.View {
		p := w.OpenPort()
		p.ExternalIPs, p.LoadBalancerVIPs = []netip.Addr{w.Node, w.External}, []netip.Addr{w.Second}
		return w.View(p)
	}},
	{Name: "node-port-listed-addresses", make: func(w rendertest.World, facts *service.NodeFacts) *service.View {
		facts.NodePorts[w.Family].All = false
		facts.NodePorts[w.Family].Addresses = []netip.Addr{w.Loopback, w.Second, w.LinkLocal}
		p := w.Port()
		p.NodePort, p.Protocol = 30080, service.UDP
		return w.View(p)
	}},
	{Name: "node-port-nowhere", make: func(w rendertest.World, facts *service.NodeFacts) *service.View {
		facts.NodePorts[w.Family] = service.NodePortAddresses{}
		p := w.OpenPort()
		p.ExternalIPs, p.ExternalLocal, p.Local = nil, true, w.Endpoints(1)
		view := w.View(p)
		view.HealthCheckNodePort = 32000
		return view
	}},
	{Name: "source-ranges", make: func(w rendertest.World, _ *service.NodeFacts) *service.View {
		p := w.OpenPort()
		p.SourceRanges = []netip.Prefix{w.Allowed, netip.PrefixFrom(w.External, w.External.BitLen())}
		return w.View(p)
	}},
	{Name: "source-ranges-with-node", make: func(w rendertest.World, _ *service.NodeFacts) *service.View {
		p := w.OpenPort()
		p.SourceRanges = []netip.Prefix{w.Allowed, netip.PrefixFrom(w.Node, w.Node.BitLen())}
		p.NodeInSourceRanges = true
		return w.View(p)
	}},
	{Name: "source-ranges-everyone", make: func(w rendertest.World, _ *service.NodeFacts) *service.View {
		p := w.OpenPort()
		p.SourceRanges = []netip.Prefix{w.Allowed, netip.PrefixFrom(w.Node, 0).Masked()}
		return w.View(p)
	}},
	{Name: "affinity", make: func(w rendertest.World, _ *service.NodeFacts) *service.View {
		p := w.OpenPort()
		p.AffinitySeconds = 10800
		return w.View(p)
	}},
	{Name: "internal-local", make: func(w rendertest.World, _ *service.NodeFacts) *service.View {
		p := w.Port()
		p.InternalLocal, p.Cluster, p.Local = true, nil, w.Endpoints(1)
		p.Draining = []service.Endpoint{{AddrPort: netip.AddrPortFrom(w.EndpointAddrs[1], 8080), Local: true}, w.Endpoints(3)[2]}
		return w.View(p)
	}},
	{Name: "internal-local-without-local", make: func(w rendertest.World, _ *service.NodeFacts) *service.View {
		p := w.OpenPort()
		p.InternalLocal, p.Cluster = true, w.Endpoints(3)[1:]
		return w.View(p)
	}},
	{Name: "no-endpoints", make: func(w rendertest.World, _ *service.NodeFacts) *service.View {
		p := w.OpenPort()
		p.HasAny, p.Cluster, p.ExternalLocal = false, nil, true
		return w.View(p)
	}},
	{Name: "draining", make: func(w rendertest.World, _ *service.NodeFacts) *service.View {
		p := w.OpenPort()
		p.Cluster, p.Draining = w.Endpoints(2)[1:], []service.Endpoint{w.Endpoints(1)[0], w.Endpoints(3)[2]}
		return w.View(p)
	}},
	{Name: "draining-only", make: func(w rendertest.World, _ *service.NodeFacts) *service.View {
		p := w.Port()
		p.HasAny, p.Cluster, p.Draining = false, nil, w.Endpoints(2)
		return w.View(p)
	}},
	{Name: "scheduler-mh", options: render.Options{Scheduler: "mh"}, make: func(w rendertest.World, _ *service.NodeFacts) *service.View {
		p := w.Port()
		p.AffinitySeconds = 10
		return w.View(p)
	}},
	{Name: "scheduler-of-service", options: render.Options{Scheduler: "mh"}, make: func(w rendertest.World, _ *service.NodeFacts) *service.View {
		view := w.View(w.Port())
		view.Scheduling = service.Scheduling{Scheduler: "sh", Fallback: true}
		return view
	}},
	{Name: "scheduler-of-service-with-ports", make: func(w rendertest.World, _ *service.NodeFacts) *service.View {
		view := w.View(w.Port())
		view.Scheduling = service.Scheduling{Scheduler: "sh", Ports: true}
		return view
	}},
	{Name: "scaffold", make: scaffoldOnly},
	{
		Name: "scaffold-options", options: render.Options{MasqueradeBit: 5, RandomFully: true},
		make: func(w rendertest.World, facts *service.NodeFacts) *service.View {
			facts.MasqueradeAll = true
			facts.Detect[w.Family] = service.LocalDetector{Interface: "cali+"}
			return nil
		},
	},
	{Name: "scaffold-no-detection", make: func(w rendertest.World, facts *service.NodeFacts) *service.View {
		facts.Detect[w.Family] = service.LocalDetector{}
		return nil
	}},
	{Name: "scaffold-every-sender-is-a-pod", make: func(w rendertest.World, facts *service.NodeFacts) *service.View {
		facts.Detect[w.Family].CIDR = netip.PrefixFrom(w.Node, 0).Masked()
		return nil
	}},
}

func scaffoldOnly(rendertest.World, *service.NodeFacts) *service.View { return nil }

// Render returns the case's objects, by a renderer of its own.
func (c Case) Render(family service.Family) []dataplane.Object {
	options := c.options
	if options.MasqueradeBit == 0 {
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

// SPDX-License-Identifier: Apache-2.0

package rendertest

import (
	"net/netip"
	"slices"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	ipvs "github.com/sluice-proxy/sluice/dataplane/ipvs/render"
	"github.com/sluice-proxy/sluice/service"
)

// IPVS has every feature of that mode. The golden files of package render show what the cases render.
var IPVS = append(slices.Clone(everywhere), []Case{
	{Name: "cluster-ip-unnamed-udp", Make: func(w World, _ *service.NodeFacts) *service.View {
		p := w.Port()
		p.Name, p.Protocol, p.Port = "", service.UDP, 53
		// The other one gets no new flows, and keeps those that it has while it serves.
		p.Cluster, p.Serving = w.Endpoints(1), w.Endpoints(2)
		return w.View(p)
	}},
	{Name: "external-local-without-local-sctp", Make: func(w World, _ *service.NodeFacts) *service.View {
		p := w.OpenPort()
		p.Protocol, p.ExternalLocal, p.Cluster = service.SCTP, true, w.Endpoints(3)[1:]
		return w.View(p)
	}},
	{Name: "external-node-address", Make: func(w World, facts *service.NodeFacts) *service.View {
		p := w.OpenPort()
		p.ExternalIPs, p.LoadBalancerVIPs = []netip.Addr{w.Node, w.External}, []netip.Addr{w.Second}
		return w.View(p)
	}},
	{Name: "node-port-listed-addresses", Make: func(w World, facts *service.NodeFacts) *service.View {
		facts.NodePorts[w.Family].All = false
		facts.NodePorts[w.Family].Addresses = []netip.Addr{w.Loopback, w.Second, w.LinkLocal}
		p := w.Port()
		p.NodePort, p.Protocol = 30080, service.UDP
		return w.View(p)
	}},
	{Name: "node-port-nowhere", Make: func(w World, facts *service.NodeFacts) *service.View {
		facts.NodePorts[w.Family] = service.NodePortAddresses{}
		p := w.OpenPort()
		p.ExternalIPs, p.ExternalLocal, p.Local = nil, true, w.Endpoints(1)
		view := w.View(p)
		view.HealthCheckNodePort = 32000
		return view
	}},
	{Name: "source-ranges", Make: func(w World, _ *service.NodeFacts) *service.View {
		p := w.OpenPort()
		p.SourceRanges = []netip.Prefix{w.Allowed, netip.PrefixFrom(w.External, w.External.BitLen())}
		return w.View(p)
	}},
	{Name: "source-ranges-with-node", Make: func(w World, _ *service.NodeFacts) *service.View {
		p := w.OpenPort()
		p.SourceRanges = []netip.Prefix{w.Allowed, netip.PrefixFrom(w.Node, w.Node.BitLen())}
		p.NodeInSourceRanges = true
		return w.View(p)
	}},
	{Name: "source-ranges-everyone", Make: func(w World, _ *service.NodeFacts) *service.View {
		p := w.OpenPort()
		p.SourceRanges = []netip.Prefix{w.Allowed, netip.PrefixFrom(w.Node, 0).Masked()}
		return w.View(p)
	}},
	{Name: "affinity", Make: func(w World, _ *service.NodeFacts) *service.View {
		p := w.OpenPort()
		p.AffinitySeconds = 10800
		return w.View(p)
	}},
	{Name: "internal-local", Make: func(w World, _ *service.NodeFacts) *service.View {
		p := w.Port()
		p.InternalLocal, p.Cluster, p.Local = true, nil, w.Endpoints(1)
		return w.View(p)
	}},
	{Name: "internal-local-without-local", Make: func(w World, _ *service.NodeFacts) *service.View {
		p := w.OpenPort()
		p.InternalLocal, p.Cluster = true, w.Endpoints(3)[1:]
		return w.View(p)
	}},
	{Name: "no-endpoints", Make: func(w World, _ *service.NodeFacts) *service.View {
		p := w.OpenPort()
		p.HasAny, p.Cluster, p.ExternalLocal = false, nil, true
		return w.View(p)
	}},
	{Name: "drain-deadline", Make: func(w World, _ *service.NodeFacts) *service.View {
		p := w.OpenPort()
		p.Protocol, p.ExternalLocal, p.Local, p.Serving = service.UDP, true, w.Endpoints(1), w.Endpoints(2)
		view := w.View(p)
		view.Drain = service.Drain{Limited: true, After: 30 * time.Second}
		return view
	}},
	{Name: "scheduler-mh", Options: ipvs.Options{Scheduler: "mh"}, Make: func(w World, _ *service.NodeFacts) *service.View {
		p := w.Port()
		p.AffinitySeconds = 10
		return w.View(p)
	}},
	{Name: "scheduler-of-service", Options: ipvs.Options{Scheduler: "mh"}, Make: func(w World, _ *service.NodeFacts) *service.View {
		view := w.View(w.Port())
		view.Scheduling = service.Scheduling{Scheduler: "sh", Fallback: true}
		return view
	}},
	{Name: "scheduler-of-service-with-ports", Make: func(w World, _ *service.NodeFacts) *service.View {
		view := w.View(w.Port())
		view.Scheduling = service.Scheduling{Scheduler: "sh", Ports: true}
		return view
	}},
	{Name: "balancing-by-connection", Make: func(w World, _ *service.NodeFacts) *service.View {
		view := w.View(w.Port())
		view.Balancing = service.ConnectionHash
		return view
	}},
	{Name: "balancing-weights", Make: func(w World, _ *service.NodeFacts) *service.View {
		p := w.Port()
		p.Cluster = w.Endpoints(3)
		p.Cluster[1].Weight, p.Cluster[2].Weight = 3, 6
		return w.View(p)
	}},
	{
		Name: "scaffold-options", Options: ipvs.Options{MasqueradeBit: 5, RandomFully: true},
		Make: func(w World, facts *service.NodeFacts) *service.View {
			facts.MasqueradeAll = true
			facts.Detect[w.Family] = service.LocalDetector{Interface: "cali+"}
			return nil
		},
	},
	{Name: "scaffold-no-detection", Make: func(w World, facts *service.NodeFacts) *service.View {
		facts.Detect[w.Family] = service.LocalDetector{}
		return nil
	}},
	{Name: "scaffold-every-sender-is-a-pod", Make: func(w World, facts *service.NodeFacts) *service.View {
		facts.Detect[w.Family].CIDR = netip.PrefixFrom(w.Node, 0).Masked()
		return nil
	}},
}...)

// RenderIPVS returns the objects of a case.
func RenderIPVS(c Case, family service.Family) []dataplane.Object {
	options, _ := c.Options.(ipvs.Options)
	if options.MasqueradeBit == 0 {
		options.MasqueradeBit = 14
	}
	return c.render(family, ipvs.NewRenderer(family, options))
}

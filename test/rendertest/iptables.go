// SPDX-License-Identifier: Apache-2.0

package rendertest

import (
	"net/netip"
	"slices"

	"github.com/sluice-proxy/sluice/dataplane"
	iptables "github.com/sluice-proxy/sluice/dataplane/iptables/render"
	"github.com/sluice-proxy/sluice/service"
)

// IPTables has every feature of that mode. The golden files of package render show what the cases render.
var IPTables = append(slices.Clone(everywhere), []Case{
	{Name: "cluster-ip-no-detection", Make: func(w World, facts *service.NodeFacts) *service.View {
		facts.Detect[w.Family] = service.LocalDetector{}
		return w.View(w.Port())
	}},
	{Name: "cluster-ip-masquerade-all-unnamed-udp", Make: func(w World, facts *service.NodeFacts) *service.View {
		facts.MasqueradeAll = true
		p := w.Port()
		p.Name, p.Protocol, p.Port = "", service.UDP, 53
		return w.View(p)
	}},
	{Name: "every-sender-is-a-pod", Make: func(w World, facts *service.NodeFacts) *service.View {
		facts.Detect[w.Family].CIDR = netip.PrefixFrom(w.ClusterIP, 0)
		p := w.OpenPort()
		p.ExternalLocal, p.Local = true, w.Endpoints(1)
		return w.View(p)
	}},
	{Name: "external-local-by-interface-without-local", Make: func(w World, facts *service.NodeFacts) *service.View {
		facts.Detect[w.Family] = service.LocalDetector{Interface: "cali+"}
		p := w.OpenPort()
		p.Protocol, p.ExternalLocal = service.SCTP, true
		return w.View(p)
	}},
	{Name: "source-ranges", Make: func(w World, _ *service.NodeFacts) *service.View {
		p := w.OpenPort()
		p.SourceRanges = []netip.Prefix{w.Allowed, netip.PrefixFrom(w.Node, w.Node.BitLen())}
		p.NodeInSourceRanges = true
		return w.View(p)
	}},
	{Name: "affinity", Make: func(w World, _ *service.NodeFacts) *service.View {
		p := w.OpenPort()
		// The local endpoint terminates. Only the Local policy uses it.
		p.ExternalLocal, p.Local, p.Cluster = true, w.Endpoints(1), w.Endpoints(3)[1:]
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
		p.InternalLocal = true
		return w.View(p)
	}},
	{Name: "no-endpoints", Make: func(w World, _ *service.NodeFacts) *service.View {
		p := w.OpenPort()
		p.HasAny, p.Cluster = false, nil
		p.SourceRanges = []netip.Prefix{w.Allowed}
		return w.View(p)
	}},
	{Name: "no-endpoints-dropped", Make: func(w World, _ *service.NodeFacts) *service.View {
		p := w.OpenPort()
		p.HasAny, p.Cluster, p.NoEndpoints = false, nil, service.NoEndpointsDrop
		return w.View(p)
	}},
	{Name: "no-endpoints-passed", Make: func(w World, _ *service.NodeFacts) *service.View {
		p := w.OpenPort()
		p.HasAny, p.Cluster, p.NoEndpoints = false, nil, service.NoEndpointsPass
		return w.View(p)
	}},
	{Name: "no-local-endpoints-rejected", Make: func(w World, _ *service.NodeFacts) *service.View {
		p := w.OpenPort()
		p.ExternalLocal, p.NoEndpoints = true, service.NoEndpointsReject
		p.SourceRanges = []netip.Prefix{w.Allowed}
		return w.View(p)
	}},
	{Name: "denied-sources", Make: func(w World, _ *service.NodeFacts) *service.View {
		p := w.OpenPort()
		p.SourceRanges = []netip.Prefix{w.Allowed}
		p.DenyRanges = []netip.Prefix{netip.PrefixFrom(w.Node, w.Node.BitLen()), w.Allowed}
		return w.View(p)
	}},
	{Name: "denied-sources-without-endpoints", Make: func(w World, _ *service.NodeFacts) *service.View {
		p := w.OpenPort()
		p.HasAny, p.Cluster = false, nil
		p.DenyRanges = []netip.Prefix{netip.PrefixFrom(w.Allowed.Addr(), 0).Masked()}
		return w.View(p)
	}},
	{
		Name: "scaffold-options", Make: scaffoldOnly,
		Options: iptables.Options{MasqueradeBit: 5, RandomFully: true, InvalidDropOmitted: true},
	},
	{Name: "scaffold-localhost", Make: func(w World, facts *service.NodeFacts) *service.View {
		facts.LocalhostNodePorts = true
		return nil
	}},
	{Name: "scaffold-listed-addresses", Make: func(w World, facts *service.NodeFacts) *service.View {
		facts.NodePorts[w.Family] = service.NodePortAddresses{Addresses: []netip.Addr{w.Node, w.Second, w.Loopback}}
		return nil
	}},
	{Name: "scaffold-listed-localhost", Make: func(w World, facts *service.NodeFacts) *service.View {
		facts.LocalhostNodePorts = true
		facts.NodePorts[w.Family] = service.NodePortAddresses{Addresses: []netip.Addr{w.Loopback, w.Node}}
		return nil
	}},
}...)

// RenderIPTables returns the objects of a case.
func RenderIPTables(c Case, family service.Family) []dataplane.Object {
	options, _ := c.Options.(iptables.Options)
	if options.MasqueradeBit == 0 {
		options.MasqueradeBit = 14
	}
	return c.render(family, iptables.NewRenderer(family, options))
}

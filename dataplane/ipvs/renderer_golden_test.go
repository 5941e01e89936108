package ipvs

import (
	"context"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

var updateRender = flag.Bool("update-render", false, "rewrite testdata/render")

// renderCase is one situation in one family, and what to render in it.
type renderCase struct {
	name string
	// make returns the view and may change the facts. A nil view renders the
	// scaffold.
	make    func(w world, facts *service.NodeFacts) *service.View
	options Options
}

var renderCases = []renderCase{
	{name: "cluster-ip", make: func(w world, _ *service.NodeFacts) *service.View {
		return w.view(w.port())
	}},
	{name: "cluster-ip-unnamed-udp", make: func(w world, _ *service.NodeFacts) *service.View {
		p := w.port()
		p.Name, p.Protocol, p.Port = "", service.UDP, 53
		// Only TCP drains.
		p.Cluster, p.Draining = w.endpoints(1), w.endpoints(2)[1:]
		return w.view(p)
	}},
	{name: "external-cluster", make: func(w world, _ *service.NodeFacts) *service.View {
		return w.view(w.openPort())
	}},
	{name: "external-local", make: func(w world, _ *service.NodeFacts) *service.View {
		p := w.openPort()
		p.ExternalLocal, p.Local = true, w.endpoints(1)
		view := w.view(p)
		view.HealthCheckNodePort = 32000
		return view
	}},
	{name: "external-local-without-local-sctp", make: func(w world, _ *service.NodeFacts) *service.View {
		p := w.openPort()
		p.Protocol, p.ExternalLocal, p.Cluster = service.SCTP, true, w.endpoints(3)[1:]
		return w.view(p)
	}},
	{name: "external-node-address", make: func(w world, facts *service.NodeFacts) *service.View {
		p := w.openPort()
		p.ExternalIPs, p.LoadBalancerVIPs = []netip.Addr{w.node, w.external}, []netip.Addr{w.second}
		return w.view(p)
	}},
	{name: "node-port-listed-addresses", make: func(w world, facts *service.NodeFacts) *service.View {
		facts.NodePorts[w.family].All = false
		facts.NodePorts[w.family].Addresses = []netip.Addr{w.loopback, w.second, w.linkLocal}
		p := w.port()
		p.NodePort, p.Protocol = 30080, service.UDP
		return w.view(p)
	}},
	{name: "node-port-nowhere", make: func(w world, facts *service.NodeFacts) *service.View {
		facts.NodePorts[w.family] = service.NodePortAddresses{}
		p := w.openPort()
		p.ExternalIPs, p.ExternalLocal, p.Local = nil, true, w.endpoints(1)
		view := w.view(p)
		view.HealthCheckNodePort = 32000
		return view
	}},
	{name: "source-ranges", make: func(w world, _ *service.NodeFacts) *service.View {
		p := w.openPort()
		p.SourceRanges = []netip.Prefix{w.allowed, netip.PrefixFrom(w.external, w.external.BitLen())}
		return w.view(p)
	}},
	{name: "source-ranges-with-node", make: func(w world, _ *service.NodeFacts) *service.View {
		p := w.openPort()
		p.SourceRanges = []netip.Prefix{w.allowed, netip.PrefixFrom(w.node, w.node.BitLen())}
		p.NodeInSourceRanges = true
		return w.view(p)
	}},
	{name: "source-ranges-everyone", make: func(w world, _ *service.NodeFacts) *service.View {
		p := w.openPort()
		p.SourceRanges = []netip.Prefix{w.allowed, netip.PrefixFrom(w.node, 0).Masked()}
		return w.view(p)
	}},
	{name: "affinity", make: func(w world, _ *service.NodeFacts) *service.View {
		p := w.openPort()
		p.AffinitySeconds = 10800
		return w.view(p)
	}},
	{name: "internal-local", make: func(w world, _ *service.NodeFacts) *service.View {
		p := w.port()
		p.InternalLocal, p.Cluster, p.Local = true, nil, w.endpoints(1)
		p.Draining = []service.Endpoint{{AddrPort: netip.AddrPortFrom(w.endpointAddrs[1], 8080), Local: true}, w.endpoints(3)[2]}
		return w.view(p)
	}},
	{name: "internal-local-without-local", make: func(w world, _ *service.NodeFacts) *service.View {
		p := w.openPort()
		p.InternalLocal, p.Cluster = true, w.endpoints(3)[1:]
		return w.view(p)
	}},
	{name: "no-endpoints", make: func(w world, _ *service.NodeFacts) *service.View {
		p := w.openPort()
		p.HasAny, p.Cluster, p.ExternalLocal = false, nil, true
		return w.view(p)
	}},
	{name: "draining", make: func(w world, _ *service.NodeFacts) *service.View {
		p := w.openPort()
		p.Cluster, p.Draining = w.endpoints(2)[1:], []service.Endpoint{w.endpoints(1)[0], w.endpoints(3)[2]}
		return w.view(p)
	}},
	{name: "draining-only", make: func(w world, _ *service.NodeFacts) *service.View {
		p := w.port()
		p.HasAny, p.Cluster, p.Draining = false, nil, w.endpoints(2)
		return w.view(p)
	}},
	{name: "scheduler-mh", options: Options{Scheduler: "mh"}, make: func(w world, _ *service.NodeFacts) *service.View {
		p := w.port()
		p.AffinitySeconds = 10
		return w.view(p)
	}},
	{name: "scheduler-of-service", options: Options{Scheduler: "mh"}, make: func(w world, _ *service.NodeFacts) *service.View {
		view := w.view(w.port())
		view.Scheduling = service.Scheduling{Scheduler: "sh", Fallback: true}
		return view
	}},
	{name: "scheduler-of-service-with-ports", make: func(w world, _ *service.NodeFacts) *service.View {
		view := w.view(w.port())
		view.Scheduling = service.Scheduling{Scheduler: "sh", Ports: true}
		return view
	}},
	{name: "scaffold", make: scaffoldOnly},
	{
		name: "scaffold-options", options: Options{MasqueradeBit: 5, RandomFully: true},
		make: func(w world, facts *service.NodeFacts) *service.View {
			facts.MasqueradeAll = true
			facts.Detect[w.family] = service.LocalDetector{Interface: "cali+"}
			return nil
		},
	},
	{name: "scaffold-no-detection", make: func(w world, facts *service.NodeFacts) *service.View {
		facts.Detect[w.family] = service.LocalDetector{}
		return nil
	}},
	{name: "scaffold-every-sender-is-a-pod", make: func(w world, facts *service.NodeFacts) *service.View {
		facts.Detect[w.family].CIDR = netip.PrefixFrom(w.node, 0).Masked()
		return nil
	}},
}

func scaffoldOnly(world, *service.NodeFacts) *service.View { return nil }

// render returns the case's objects. A second renderer, if there is one, returns
// the same.
func (c renderCase) render(family service.Family) []dataplane.Object {
	options := c.options
	if options.MasqueradeBit == 0 {
		options.MasqueradeBit = 14
	}
	w := worldOf(family)
	facts := w.facts()
	view := c.make(w, facts)
	renderer := NewRenderer(family, options)
	if view == nil {
		return renderer.Node(facts)
	}
	return renderer.Service(context.Background(), view, facts)
}

// Every feature in both families. The kernel test holds the same texts against
// the tools.
func TestRenderGolden(t *testing.T) {
	for _, c := range renderCases {
		t.Run(c.name, func(t *testing.T) {
			var b strings.Builder
			for _, family := range service.Families {
				fmt.Fprintf(&b, "-- %s --\n%s", family, listing(c.render(family)))
			}
			path := filepath.Join("testdata", "render", c.name+".txt")
			if *updateRender {
				if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if b.String() != string(want) {
				t.Errorf("differs from %s (go test -update-render rewrites it):\n%s", path, b.String())
			}
		})
	}
}

package iptables

import (
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
	// make gives the view and may change the facts. A nil view renders the
	// scaffold.
	make    func(w world, facts *service.NodeFacts) *service.View
	options Options
}

var renderCases = []renderCase{
	{name: "cluster-ip", make: func(w world, _ *service.NodeFacts) *service.View {
		return w.view(w.port())
	}},
	{name: "cluster-ip-no-detection", make: func(w world, facts *service.NodeFacts) *service.View {
		facts.Detect[w.family] = service.LocalDetector{}
		return w.view(w.port())
	}},
	{name: "cluster-ip-masquerade-all-unnamed-udp", make: func(w world, facts *service.NodeFacts) *service.View {
		facts.MasqueradeAll = true
		p := w.port()
		p.Name, p.Protocol, p.Port = "", service.UDP, 53
		return w.view(p)
	}},
	{name: "every-sender-is-a-pod", make: func(w world, facts *service.NodeFacts) *service.View {
		facts.Detect[w.family].CIDR = netip.PrefixFrom(w.clusterIP, 0)
		p := w.openPort()
		p.ExternalLocal, p.Local = true, w.endpoints(1)
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
	{name: "external-local-by-interface-without-local", make: func(w world, facts *service.NodeFacts) *service.View {
		facts.Detect[w.family] = service.LocalDetector{Interface: "cali+"}
		p := w.openPort()
		p.Protocol, p.ExternalLocal = service.SCTP, true
		return w.view(p)
	}},
	{name: "source-ranges", make: func(w world, _ *service.NodeFacts) *service.View {
		p := w.openPort()
		p.SourceRanges = []netip.Prefix{w.allowed, netip.PrefixFrom(w.node, w.node.BitLen())}
		p.NodeInSourceRanges = true
		return w.view(p)
	}},
	{name: "affinity", make: func(w world, _ *service.NodeFacts) *service.View {
		p := w.openPort()
		// The local endpoint terminates, and is used by the Local policy alone.
		p.ExternalLocal, p.Local, p.Cluster = true, w.endpoints(1), w.endpoints(3)[1:]
		p.AffinitySeconds = 10800
		return w.view(p)
	}},
	{name: "internal-local", make: func(w world, _ *service.NodeFacts) *service.View {
		p := w.port()
		p.InternalLocal, p.Cluster, p.Local = true, nil, w.endpoints(1)
		return w.view(p)
	}},
	{name: "internal-local-without-local", make: func(w world, _ *service.NodeFacts) *service.View {
		p := w.openPort()
		p.InternalLocal = true
		return w.view(p)
	}},
	{name: "no-endpoints", make: func(w world, _ *service.NodeFacts) *service.View {
		p := w.openPort()
		p.HasAny, p.Cluster = false, nil
		p.SourceRanges = []netip.Prefix{w.allowed}
		return w.view(p)
	}},
	{name: "scaffold", make: scaffoldOnly},
	{
		name: "scaffold-options", make: scaffoldOnly,
		options: Options{MasqueradeBit: 5, RandomFully: true, InvalidDropOmitted: true},
	},
	{name: "scaffold-localhost", make: func(w world, facts *service.NodeFacts) *service.View {
		facts.LocalhostNodePorts = true
		return nil
	}},
	{name: "scaffold-listed-addresses", make: func(w world, facts *service.NodeFacts) *service.View {
		facts.NodePorts[w.family] = service.NodePortAddresses{Addresses: append(w.nodePortAddrs, w.loopback)}
		return nil
	}},
	{name: "scaffold-listed-localhost", make: func(w world, facts *service.NodeFacts) *service.View {
		facts.LocalhostNodePorts = true
		facts.NodePorts[w.family] = service.NodePortAddresses{Addresses: []netip.Addr{w.loopback, w.node}}
		return nil
	}},
}

func scaffoldOnly(world, *service.NodeFacts) *service.View { return nil }

func (c renderCase) render(family service.Family) []dataplane.Object {
	options := c.options
	if options == (Options{}) {
		options.MasqueradeBit = 14
	}
	w := worldOf(family)
	facts := w.facts()
	view := c.make(w, facts)
	renderer := NewRenderer(family, options)
	if view == nil {
		return renderer.Node(facts)
	}
	return renderer.Service(view, facts)
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

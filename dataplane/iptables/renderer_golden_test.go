package iptables

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/iptables/tree"
	"github.com/sluice-proxy/sluice/service"
)

// world is the addresses of one family that the renderer's tests use.
type world struct {
	family                       service.Family
	clusterIP, external, vip     netip.Addr
	node, loopback               netip.Addr
	pods, allowed                netip.Prefix
	services                     netip.Prefix
	endpointAddrs, nodePortAddrs []netip.Addr
}

func worldOf(family service.Family) world {
	texts := []string{
		"172.30.0.41", "192.0.2.1", "198.51.100.7", "203.0.113.1", "127.0.0.1",
		"10.180.0.1", "10.180.0.2", "10.180.1.3", "203.0.113.2",
	}
	prefixes := []string{"10.180.0.0/16", "198.18.0.0/15", "172.30.0.0/16"}
	if family == service.IPv6 {
		texts = []string{
			"fd00:172:30::41", "2001:db8:1::1", "2001:db8:2::7", "2001:db8:3::1", "::1",
			"fd00:10:180::1", "fd00:10:180::2", "fd00:10:180:1::3", "2001:db8:3::2",
		}
		prefixes = []string{"fd00:10:180::/48", "2001:db8:9::/48", "fd00:172:30::/112"}
	}
	a := make([]netip.Addr, len(texts))
	for i, text := range texts {
		a[i] = netip.MustParseAddr(text)
	}
	return world{
		family: family, clusterIP: a[0], external: a[1], vip: a[2], node: a[3], loopback: a[4],
		endpointAddrs: a[5:8], nodePortAddrs: []netip.Addr{a[3], a[8]},
		pods: netip.MustParsePrefix(prefixes[0]), allowed: netip.MustParsePrefix(prefixes[1]),
		services: netip.MustParsePrefix(prefixes[2]),
	}
}

// endpoints returns the first n of three endpoints. The first is on this node.
func (w world) endpoints(n int) []service.Endpoint {
	var endpoints []service.Endpoint
	for i, addr := range w.endpointAddrs[:n] {
		endpoints = append(endpoints, service.Endpoint{AddrPort: netip.AddrPortFrom(addr, 8080), Local: i == 0})
	}
	return endpoints
}

// facts returns those of a node that detects pods by CIDR and whose node ports answer on every
// address.
func (w world) facts() *service.NodeFacts {
	facts := &service.NodeFacts{Name: "n1"}
	facts.NodeIPs[w.family] = w.node
	facts.Detect[w.family] = service.LocalDetector{CIDR: w.pods}
	facts.NodePorts[w.family] = service.NodePortAddresses{All: true}
	return facts
}

// port is a ClusterIP with three endpoints.
func (w world) port() service.PortView {
	return service.PortView{
		Name: "p80", Port: 80, ClusterIP: w.clusterIP, HasAny: true, Cluster: w.endpoints(3),
	}
}

// openPort answers on every kind of frontend.
func (w world) openPort() service.PortView {
	p := w.port()
	p.NodePort = 30080
	p.ExternalIPs = []netip.Addr{w.external}
	p.LoadBalancerVIPs = []netip.Addr{w.vip}
	return p
}

func (w world) view(ports ...service.PortView) *service.View {
	view := &service.View{Key: service.Key{Namespace: "ns1", Name: "svc1"}}
	view.Ports[w.family] = ports
	return view
}

// keyText prints a key, for example "172.30.0.41 tcp 80".
func keyText(k tree.Key) string {
	switch {
	case k.Lane == tree.Tail:
		return "tail " + k.Text
	case !k.HasPort:
		return k.Addr.String()
	case !k.Addr.IsValid():
		return fmt.Sprintf("%s %d", k.Protocol, k.Port)
	default:
		return fmt.Sprintf("%s %s %d", k.Addr, k.Protocol, k.Port)
	}
}

// listing prints objects, sorted: elements one per line, chains with their rules below.
func listing(objects []dataplane.Object) string {
	lines := map[string]string{}
	for _, o := range objects {
		name, body := o.ID.Container+" "+o.ID.Name, "  "+strings.ReplaceAll(o.Body, "\n", "\n  ")
		if o.Kind == dataplane.Element {
			key, err := tree.DecodeKey(o.ID.Name)
			if err != nil {
				panic(err)
			}
			name = fmt.Sprintf("%s [%s]", o.ID.Container, keyText(key))
		}
		if o.Body == "" {
			body = "  (empty)"
		}
		lines[name] = name + "\n" + body + "\n"
	}
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(lines)) {
		b.WriteString(lines[name])
	}
	return b.String()
}

var updateRender = flag.Bool("update-render", false, "rewrite testdata/render")

// renderCase is one situation in one family.
type renderCase struct {
	name string
	// make returns the view and may change the facts. A nil view renders the scaffold.
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
		// The local endpoint terminates. Only the Local policy uses it.
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
	return renderer.Service(context.Background(), view, facts)
}

// TestRenderGolden covers every feature in both families. TestKernelPrintsWhatWasRendered compares
// the same texts with the tools.
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

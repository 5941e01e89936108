// SPDX-License-Identifier: Apache-2.0

package userspace

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
	"github.com/sluice-proxy/sluice/dataplane/listeners"
	"github.com/sluice-proxy/sluice/service"
)

var update = flag.Bool("update", false, "rewrite testdata")

// addresses are those of a family.
type addresses struct {
	cluster, external, vip, node, second netip.Addr
	pods, allowed                        netip.Prefix
	endpoints                            [3]netip.AddrPort
}

func ip(text string) netip.Addr                    { return netip.MustParseAddr(text) }
func at(text string) netip.AddrPort                { return netip.MustParseAddrPort(text) }
func prefix(text string) netip.Prefix              { return netip.MustParsePrefix(text) }
func threeAt(a, b, c string) (r [3]netip.AddrPort) { return [3]netip.AddrPort{at(a), at(b), at(c)} }

var known = service.PerFamily[addresses]{
	{ip("10.0.0.41"), ip("192.0.2.7"), ip("192.0.2.9"), ip("198.51.100.1"), ip("198.51.100.2"),
		prefix("10.244.1.0/24"), prefix("203.0.113.0/25"), threeAt("10.244.1.10:8080", "10.244.2.20:8080", "10.244.2.30:8080")},
	{ip("fd00::41"), ip("2001:db8::7"), ip("2001:db8::9"), ip("2001:db8:1::1"), ip("2001:db8:1::2"),
		prefix("fd00:10:244:1::/64"), prefix("2001:db8:2::/33"), threeAt("[fd00:10::1]:8080", "[fd00:10::2]:8080", "[fd00:10::3]:8080")},
}

// renderCases change a port with every kind of frontend, and the facts.
var renderCases = map[string]func(a addresses, p *service.PortView, f *service.NodeFacts){
	"all":                func(addresses, *service.PortView, *service.NodeFacts) {},
	"settings":           func(addresses, *service.PortView, *service.NodeFacts) {},
	"proxy-protocol":     func(addresses, *service.PortView, *service.NodeFacts) {},
	"proxy-protocol-udp": func(_ addresses, p *service.PortView, _ *service.NodeFacts) { p.Protocol = service.UDP },
	"udp-affinity": func(_ addresses, p *service.PortView, _ *service.NodeFacts) {
		p.Protocol, p.AffinitySeconds = service.UDP, 10800
	},
	"sctp":    func(_ addresses, p *service.PortView, _ *service.NodeFacts) { p.Protocol = service.SCTP },
	"refused": func(_ addresses, p *service.PortView, _ *service.NodeFacts) { p.HasAny, p.Cluster = false, nil },
	"external-local": func(_ addresses, p *service.PortView, _ *service.NodeFacts) {
		p.ExternalLocal, p.Local = true, p.Cluster[:1]
	},
	"external-local-without": func(_ addresses, p *service.PortView, f *service.NodeFacts) {
		p.ExternalLocal, f.Detect = true, service.PerFamily[service.LocalDetector]{}
	},
	"internal-local-without": func(_ addresses, p *service.PortView, _ *service.NodeFacts) { p.InternalLocal = true },
	"source-ranges": func(a addresses, p *service.PortView, _ *service.NodeFacts) {
		p.SourceRanges, p.NodeInSourceRanges = []netip.Prefix{a.allowed, single(a.node)}, true
	},
	"source-ranges-everyone": func(a addresses, p *service.PortView, _ *service.NodeFacts) {
		p.SourceRanges = []netip.Prefix{a.allowed, netip.PrefixFrom(a.allowed.Addr(), 0).Masked()}
	},
	"denied-sources": func(a addresses, p *service.PortView, _ *service.NodeFacts) {
		p.DenyRanges = []netip.Prefix{a.allowed, single(a.node)}
	},
	"dropped": func(_ addresses, p *service.PortView, _ *service.NodeFacts) {
		p.HasAny, p.Cluster, p.NoEndpoints = false, nil, service.NoEndpointsDrop
	},
	"api-server": func(a addresses, _ *service.PortView, f *service.NodeFacts) {
		f.Servers[service.FamilyOf(a.vip)] = []netip.Addr{a.cluster, a.external, a.vip}
	},
	"health-port": func(addresses, *service.PortView, *service.NodeFacts) {},
	"node-address-and-listed": func(a addresses, p *service.PortView, f *service.NodeFacts) {
		family := service.FamilyOf(a.node)
		p.ExternalIPs = []netip.Addr{a.second}
		f.NodePorts[family].All, f.NodePorts[family].Addresses = false, []netip.Addr{a.node, ip("fe80::1")}
	},
}

func TestRenderer_Golden(t *testing.T) {
	for name, change := range renderCases {
		for _, family := range service.Families {
			t.Run(fmt.Sprintf("%s-%s", name, family), func(t *testing.T) {
				a := known[family]
				port := service.PortView{
					Name: "web", Protocol: service.TCP, Port: 80, NodePort: 30080, ClusterIP: a.cluster, HasAny: true,
					ExternalIPs: []netip.Addr{a.external}, LoadBalancerVIPs: []netip.Addr{a.vip},
				}
				for i, e := range a.endpoints {
					port.Cluster = append(port.Cluster, service.Endpoint{AddrPort: e, Local: i == 0})
				}
				facts := &service.NodeFacts{Name: "n1", LocalhostNodePorts: true}
				facts.NodePorts[family] = service.NodePortAddresses{All: true, Host: []netip.Addr{a.node, a.second}}
				facts.Detect[family].CIDR = a.pods
				change(a, &port, facts)
				view := &service.View{Key: service.Key{Namespace: "ns", Name: "web"}}
				view.Ports[family] = []service.PortView{port}
				view.ProxyProtocol = strings.HasPrefix(name, "proxy-protocol")
				settings := Settings{Guarded: name != "all"}
				if name == "settings" {
					view.Balancing = service.LeastConnections
				}
				if name == "all" || name == "health-port" {
					view.HealthCheckNodePort = 31000
				}
				objects := NewRenderer(Addresses, family, settings).Service(context.Background(), view, facts)
				objects = append(objects, NewRenderer(NodePorts, family, settings).Service(context.Background(), view, facts)...)
				golden(t, fmt.Sprintf("%s-%s", name, family), text(t, objects))
				if other := NewRenderer(Addresses, 1-family, settings).Service(context.Background(), view, facts); other != nil {
					t.Errorf("the other family has %v", other)
				}
			})
		}
	}
}

// TestRenderer_SourceRangesLimitExternalIP: source ranges limit a load balancer IP that is also an external IP of the
// Service.
func TestRenderer_SourceRangesLimitExternalIP(t *testing.T) {
	vip := ip("203.0.113.1")
	view := &service.View{Key: service.Key{Namespace: "ns", Name: "web"}}
	view.Ports[service.IPv4] = []service.PortView{{
		Port: 80, ExternalIPs: []netip.Addr{ip("192.0.2.1"), vip}, LoadBalancerVIPs: []netip.Addr{vip},
		SourceRanges: []netip.Prefix{prefix("198.51.100.0/24")}, HasAny: true, Cluster: []service.Endpoint{{AddrPort: at("10.0.0.1:80")}},
	}}
	rendered := dataplane.NewFragment(view.Key, NewRenderer(Addresses, service.IPv4, Settings{}).Service(context.Background(), view, &service.NodeFacts{}))
	limited := 0
	for _, o := range rendered.Objects {
		place, err := listeners.Place(o.ID)
		if err != nil {
			continue
		}
		if limits := strings.Contains(o.Body, "198.51.100.0/24"); limits != (place.At.Addr() == vip) {
			t.Errorf("%v: %q", place.At, o.Body)
		} else if limits {
			limited++
		}
	}
	if limited != 1 {
		t.Errorf("%d listeners are limited, want 1", limited)
	}
}

// TestRenderer_NodeHealthPort: the node opens its health port at Service addresses only where a guard would otherwise
// reject it.
func TestRenderer_NodeHealthPort(t *testing.T) {
	const ready = "forwarder ready\n"
	for _, c := range []struct {
		part     Part
		settings Settings
		want     string
	}{
		{Addresses, Settings{Guarded: true, HealthPort: 10256}, ready + "health 10256\n"},
		{Addresses, Settings{Guarded: true}, ready},
		{Addresses, Settings{HealthPort: 10256}, ready},
		{NodePorts, Settings{Guarded: true, HealthPort: 10256}, ready},
	} {
		var got string
		for _, o := range NewRenderer(c.part, service.IPv4, c.settings).Node(&service.NodeFacts{}) {
			got += o.ID.Container + " " + o.ID.Name + "\n"
		}
		if got != c.want {
			t.Errorf("%s with %+v: got\n%s\nwant\n%s", c.part, c.settings, got, c.want)
		}
	}
}

// text shows objects, and checks that writer and ledger can read them.
func text(t *testing.T, objects []dataplane.Object) string {
	var b strings.Builder
	for _, o := range dataplane.NewFragment(service.Key{}, objects).Objects {
		fmt.Fprintf(&b, "%s %s\n", o.ID.Container, o.ID.Name)
		for line := range strings.Lines(o.Body) {
			b.WriteString("\t" + line)
		}
		if o.ID.Container != containerListener {
			if f, ok := elementOf(o.ID); !ok || guardedID(f) != o.ID {
				t.Errorf("%v is read as %v", o.ID, f)
			}
			continue
		}
		p, err := listeners.Place(o.ID)
		if err != nil || listeners.ID(p) != o.ID {
			t.Errorf("%v is read as %v, %v", o.ID, p, err)
		}
		if f, ok := (Naming{}).Frontend(o.ID); !ok || netip.AddrPortFrom(f.Addr, f.Port) != p.At || f.Protocol != p.Protocol {
			t.Errorf("%v is the frontend %v", o.ID, f)
		}
		if table, err := parseTable(o.Body); err != nil || table.body() != o.Body {
			t.Errorf("%q is read as %+v, %v", o.Body, table, err)
		}
	}
	return b.String()
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name+".txt")
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestParseTable_Invalid: parseTable rejects invalid bodies.
func TestParseTable_Invalid(t *testing.T) {
	for _, body := range []string{"to\n", "to 10.0.0.1\n", "affinity x\n", "allow 10.0.0.1\n", "near-to 10.0.0.1\n", "via 10.0.0.1:80\n", "\n",
		"of web\n", "of /web\n", "balance random\n", "proxy-protocol v1\n", "log\n"} {
		if table, err := parseTable(body); err == nil {
			t.Errorf("%q is read as %+v", body, table)
		}
	}
}

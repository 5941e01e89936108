// SPDX-License-Identifier: Apache-2.0

package localport

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/dataplane/relay"
	"github.com/sluice-proxy/sluice/service"
)

// scenes are the addresses that tests of the renderer use.
var scenes = service.PerFamily[struct{ own, second, loopback, linkLocal, clusterIP, endpoint string }]{
	service.IPv4: {"192.0.2.10", "198.51.100.10", "127.0.0.1", "169.254.0.10", "172.30.0.41", "10.0.0.1:8080"},
	service.IPv6: {"2001:db8::10", "2001:db8:1::10", "::1", "fe80::10", "fd00::41", "[fd10::1]:8080"},
}

// exposed is a port that this node can serve; change makes it another one.
func exposed(family service.Family, change func(*service.PortView)) *service.View {
	endpoint := service.Endpoint{AddrPort: netip.MustParseAddrPort(scenes[family].endpoint), Local: true}
	port := service.PortView{
		Port: 80, NodePort: 30080, HasAny: true, ClusterIP: netip.MustParseAddr(scenes[family].clusterIP),
		Cluster: []service.Endpoint{endpoint}, Local: []service.Endpoint{endpoint},
	}
	if change != nil {
		change(&port)
	}
	view := &service.View{Key: service.Key{Namespace: "ns1", Name: "web"}}
	view.Ports[family] = []service.PortView{port}
	return view
}

// rendered returns what is rendered, as text.
func rendered(family service.Family, view *service.View, facts *service.NodeFacts) []string {
	var texts []string
	for _, o := range NewRenderer(family).Service(context.Background(), view, facts) {
		texts = append(texts, fmt.Sprintf("%s %s %s", o.ID.Container, o.ID.Name, o.Body))
	}
	return texts
}

// TestRenderer_ListensForWhatCanBeServed: the renderer makes a listener for each TCP or UDP node port that has an
// endpoint, with any traffic policies.
func TestRenderer_ListensForWhatCanBeServed(t *testing.T) {
	tcp, udp := "listener tcp/%[1]s to %[2]s", "listener udp/%[1]s to %[2]s"
	for name, c := range map[string]struct {
		change func(*service.PortView)
		want   string
	}{
		"TCP":          {nil, tcp},
		"UDP":          {func(p *service.PortView) { p.Protocol = service.UDP }, udp},
		"SCTP":         {func(p *service.PortView) { p.Protocol = service.SCTP }, ""},
		"no node port": {func(p *service.PortView) { p.NodePort = 0 }, ""},
		"no endpoint":  {func(p *service.PortView) { p.HasAny, p.Cluster, p.Local = false, nil, nil }, ""},
		"policy Local with its endpoints elsewhere":          {func(p *service.PortView) { p.ExternalLocal, p.Local = true, nil }, tcp},
		"internal policy Local with its endpoints elsewhere": {func(p *service.PortView) { p.InternalLocal, p.Local = true, nil }, tcp},
	} {
		for _, family := range service.Families {
			facts := &service.NodeFacts{}
			facts.NodePorts[family].All = true
			facts.NodeIPs[family] = netip.MustParseAddr(scenes[family].own)
			var want []string
			if c.want != "" {
				want = []string{fmt.Sprintf(c.want, at(family, 30080), netip.AddrPortFrom(facts.NodeIPs[family], 30080))}
			}
			if got := rendered(family, exposed(family, c.change), facts); !slices.Equal(got, want) {
				t.Errorf("%s, %v: got %q, want %q", name, family, got, want)
			}
		}
	}
}

func at(family service.Family, port uint16) netip.AddrPort {
	return netip.AddrPortFrom(service.Loopback[family], port)
}

// TestRenderer_TargetsNodePortAddress: a listener forwards to a node address that serves node ports, preferably the
// node's own, and otherwise to endpoints.
func TestRenderer_TargetsNodePortAddress(t *testing.T) {
	for _, family := range service.Families {
		s := scenes[family]
		nodePort := func(addr string) string { return netip.AddrPortFrom(netip.MustParseAddr(addr), 30080).String() }
		for name, c := range map[string]struct {
			own    string
			all    bool
			listed []string
			want   string // empty for no listener
		}{
			"all":                           {own: s.own, all: true, want: nodePort(s.own)},
			"all, own address unknown":      {all: true, want: s.endpoint},
			"all, own address is loopback":  {own: s.loopback, all: true, want: s.endpoint},
			"all, own address is of a link": {own: s.linkLocal, all: true, want: s.endpoint},
			"own address is listed":         {own: s.own, listed: []string{s.second, s.own}, want: nodePort(s.own)},
			"another address is listed":     {own: s.own, listed: []string{s.loopback, s.linkLocal, s.second}, want: nodePort(s.second)},
			"loopback alone is listed":      {own: s.own, listed: []string{s.loopback}, want: s.endpoint},
			"nothing is listed":             {own: s.own},
		} {
			facts := &service.NodeFacts{}
			if c.own != "" {
				facts.NodeIPs[family] = netip.MustParseAddr(c.own)
			}
			facts.NodePorts[family].All = c.all
			for _, text := range c.listed {
				facts.NodePorts[family].Addresses = append(facts.NodePorts[family].Addresses, netip.MustParseAddr(text))
			}
			var want []string
			if c.want != "" {
				want = []string{fmt.Sprintf("listener tcp/%s to %s", at(family, 30080), c.want)}
			}
			if got := rendered(family, exposed(family, nil), facts); !slices.Equal(got, want) {
				t.Errorf("%v, %s: got %q, want %q", family, name, got, want)
			}
		}
	}
}

// TestRenderer_ForwardsToEndpoints: if only loopback serves node ports, a listener forwards to all endpoints of the
// cluster, with any traffic policy.
func TestRenderer_ForwardsToEndpoints(t *testing.T) {
	facts := &service.NodeFacts{}
	facts.NodePorts[service.IPv4].Loopback = true
	second := service.Endpoint{AddrPort: netip.MustParseAddrPort("10.0.0.0:8080")}
	for want, change := range map[string]func(*service.PortView){
		"to 10.0.0.0:8080 10.0.0.1:8080": func(p *service.PortView) {
			p.Cluster, p.ExternalLocal, p.InternalLocal, p.Local = append(p.Cluster, second, second), true, true, nil
		},
		"to 10.0.0.1:8080 for 3h0m0s": func(p *service.PortView) { p.AffinitySeconds = 10800 },
	} {
		got := rendered(service.IPv4, exposed(service.IPv4, change), facts)
		if want = "listener tcp/127.0.0.1:30080 " + want; !slices.Equal(got, []string{want}) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestRenderer_KeepsToItsFamily: a renderer ignores ports of the other IP family, and renders nothing for the node.
func TestRenderer_KeepsToItsFamily(t *testing.T) {
	facts := &service.NodeFacts{}
	facts.NodePorts[service.IPv4].All, facts.NodePorts[service.IPv6].All = true, true
	if got := rendered(service.IPv6, exposed(service.IPv4, nil), facts); len(got) != 0 {
		t.Errorf("got %q from the other family's ports", got)
	}
	if got := NewRenderer(service.IPv4).Node(facts); len(got) != 0 {
		t.Errorf("the node renders %v", got)
	}
}

// TestParseBody_RoundTrip: parseBody reads the targets and affinity of a listener back.
func TestParseBody_RoundTrip(t *testing.T) {
	one, two := netip.MustParseAddrPort("[2001:db8::10]:30053"), netip.MustParseAddrPort("[2001:db8::11]:53")
	for _, want := range []targets{
		{to: []netip.AddrPort{one}}, {to: []netip.AddrPort{one, two}}, {to: []netip.AddrPort{one, two}, affinity: 90 * time.Second},
	} {
		o := object(relay.Place{Protocol: service.UDP, At: netip.MustParseAddrPort("[::1]:30053")}, want)
		if got, err := parseBody(o.Body); err != nil || !slices.Equal(got.to, want.to) || got.affinity != want.affinity {
			t.Errorf("%q is read back as %v, %v", o.Body, got, err)
		}
	}
}

// TestParseBody_Invalid: parseBody rejects invalid bodies and targets on loopback addresses.
func TestParseBody_Invalid(t *testing.T) {
	for _, text := range []string{"", "to ", "192.0.2.1:80", "to 192.0.2.1", "to web:80", "to 127.0.0.1:80", "to [::1]:80",
		"to 192.0.2.1:80 127.0.0.1:80", "to 192.0.2.1:80 for ever"} {
		if got, err := parseBody(text); err == nil {
			t.Errorf("content %q is read as %v", text, got)
		}
	}
}

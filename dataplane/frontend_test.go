package dataplane_test

import (
	"maps"
	"net/netip"
	"slices"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/iptables"
	"github.com/sluice-proxy/sluice/dataplane/nftables"
	"github.com/sluice-proxy/sluice/service"
)

// shadowable is a Service port with every sort of frontend.
func shadowable(family service.Family, endpoints ...service.Endpoint) service.PortView {
	text := map[service.Family][3]string{
		service.IPv4: {"172.30.0.41", "192.0.2.1", "192.0.2.9"},
		service.IPv6: {"fd00:172:30::41", "2001:db8::1", "2001:db8::9"},
	}[family]
	return service.PortView{
		Name: "web", Protocol: service.UDP, Port: 80, NodePort: 30080,
		ClusterIP:        netip.MustParseAddr(text[0]),
		ExternalIPs:      []netip.Addr{netip.MustParseAddr(text[1])},
		LoadBalancerVIPs: []netip.Addr{netip.MustParseAddr(text[2])},
		Cluster:          endpoints, HasAny: len(endpoints) > 0,
	}
}

// TestEveryFrontendOfEveryBackendIsTold renders a Service, served and refused, and
// reads the frontends back from the names of what came out.
func TestEveryFrontendOfEveryBackendIsTold(t *testing.T) {
	endpoints := map[service.Family]string{service.IPv4: "10.0.0.1:8080", service.IPv6: "[fd00::1]:8080"}
	want := map[service.Family][]string{
		service.IPv4: {"172.30.0.41:80/udp", "192.0.2.1:80/udp", "192.0.2.9:80/udp", "node port 30080/udp"},
		service.IPv6: {"[2001:db8::1]:80/udp", "[2001:db8::9]:80/udp", "[fd00:172:30::41]:80/udp", "node port 30080/udp"},
	}
	for _, family := range service.Families {
		for name, renderer := range map[string]dataplane.Renderer{
			"iptables": iptables.NewRenderer(family, iptables.Options{MasqueradeBit: 14}),
			"nftables": nftables.NewRenderer(family, nftables.Options{MasqueradeBit: 14}),
		} {
			served := service.Endpoint{AddrPort: netip.MustParseAddrPort(endpoints[family]), Local: true}
			for what, port := range map[string]service.PortView{
				"served": shadowable(family, served), "refused": shadowable(family),
			} {
				view := &service.View{Key: service.Key{Namespace: "ns", Name: "a"}}
				view.Ports[family] = []service.PortView{port}
				told := map[string]bool{}
				for _, o := range renderer.Service(view, &service.NodeFacts{}) {
					if f, ok := o.ID.Frontend(); ok {
						told[f.String()] = true
					}
				}
				if got := slices.Sorted(maps.Keys(told)); !slices.Equal(got, want[family]) {
					t.Errorf("%s %v, %s: told %q, want %q", name, family, what, got, want[family])
				}
			}
		}
	}
}

func TestWhatIsNoFrontendIsNotTold(t *testing.T) {
	for _, id := range []dataplane.ID{
		{Container: "nat", Name: "KUBE-SVC-HAIRPIN"},
		{Container: "nat/KUBE-SVC-HAIRPIN", Name: "\x01\x0a\x00\x00\x01"},
		{Container: "nat/KUBE-SERVICES", Name: "\x02nodeports"},
		{Container: "nat/KUBE-SERVICES", Name: "\x01"},
		{Container: "nat/KUBE-SERVICES", Name: "\x01\x0a\x00\x00\x01\x2b\x00\x50"},
		{Container: "nat/KUBE-NODEPORTS", Name: "\x01\x0a\x00\x00\x01\x06\x00\x50"},
		{Container: "@frontends", Name: "\x06\x00\x00\x00\x00\x50\x00\x00"},
		{Container: "@hairpins", Name: "\x0a\x00\x00\x01\x0a\x00\x00\x01\x06\x00\x00\x00\x1f\x90\x00\x00"},
		{},
	} {
		if f, ok := id.Frontend(); ok {
			t.Errorf("%q is told as %v", id, f)
		}
	}
}

func TestFrontendAllocatesNothing(t *testing.T) {
	id := dataplane.ID{Container: "nat/KUBE-SERVICES", Name: "\x01\xc0\x00\x02\x01\x06\x00\x50"}
	var f dataplane.Frontend
	if n := testing.AllocsPerRun(100, func() { f, _ = id.Frontend() }); n != 0 || f.String() != "192.0.2.1:80/tcp" {
		t.Errorf("%v with %v allocations", f, n)
	}
}

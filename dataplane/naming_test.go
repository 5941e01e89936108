// SPDX-License-Identifier: Apache-2.0

package dataplane_test

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane"
	iptrender "github.com/sluice-proxy/sluice/dataplane/iptables/render"
	ipvsrender "github.com/sluice-proxy/sluice/dataplane/ipvs/render"
	nftrender "github.com/sluice-proxy/sluice/dataplane/nftables/render"
	"github.com/sluice-proxy/sluice/dataplane/userspace"
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

// TestNaming_EveryFrontendOfEveryBackend renders a Service with and without endpoints, and reads all its frontends back
// from the names of the objects.
func TestNaming_EveryFrontendOfEveryBackend(t *testing.T) {
	endpoints := map[service.Family]string{service.IPv4: "10.0.0.1:8080", service.IPv6: "[fd00::1]:8080"}
	want := map[service.Family][]string{
		service.IPv4: {"172.30.0.41:80/udp", "192.0.2.1:80/udp", "192.0.2.9:80/udp", "node port 30080/udp"},
		service.IPv6: {"[2001:db8::1]:80/udp", "[2001:db8::9]:80/udp", "[fd00:172:30::41]:80/udp", "node port 30080/udp"},
	}
	for _, family := range service.Families {
		for name, renderer := range map[string]dataplane.Renderer{
			"iptables": iptrender.NewRenderer(family, iptrender.Options{MasqueradeBit: 14}),
			"nftables": nftrender.NewRenderer(family, nftrender.Options{MasqueradeBit: 14}),
		} {
			served := service.Endpoint{AddrPort: netip.MustParseAddrPort(endpoints[family]), Local: true}
			for what, port := range map[string]service.PortView{
				"served": shadowable(family, served), "rejected": shadowable(family),
			} {
				view := &service.View{Key: service.Key{Namespace: "ns", Name: "a"}}
				view.Ports[family] = []service.PortView{port}
				told := map[string]bool{}
				for _, o := range renderer.Service(context.Background(), view, &service.NodeFacts{}) {
					if f, ok := renderer.Naming().Frontend(o.ID); ok {
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

// in returns the container of the elements of a set of nftables mode.
func in(set string) string { return "@" + nftrender.SetName(set) }

// TestNaming_IgnoresOtherObjects: names of objects that belong to no frontend are not read as a frontend.
func TestNaming_IgnoresOtherObjects(t *testing.T) {
	for _, id := range []dataplane.ID{
		{Container: "nat", Name: "KUBE-SVC-HAIRPIN"},
		{Container: "nat/KUBE-SVC-HAIRPIN", Name: "\x01\x0a\x00\x00\x01"},
		{Container: "nat/KUBE-SERVICES", Name: "\x02nodeports"},
		{Container: "nat/KUBE-SERVICES", Name: "\x01"},
		{Container: "nat/KUBE-SERVICES", Name: "\x01\x0a\x00\x00\x01\x2b\x00\x50"},
		{Container: "nat/KUBE-NODEPORTS", Name: "\x01\x0a\x00\x00\x01\x06\x00\x50"},
		{Container: in("frontends"), Name: "\x06\x00\x00\x00\x00\x50\x00\x00"},
		{Container: in("hairpins"), Name: "\x0a\x00\x00\x01\x0a\x00\x00\x01\x06\x00\x00\x00\x1f\x90\x00\x00"},
		{Container: "address", Name: "192.0.2.1"},
		{Container: "listener", Name: "tcp/192.0.2.1"},
		{Container: "forwarder", Name: "ready"},
		{},
	} {
		for _, naming := range []dataplane.Naming{
			iptrender.Naming{}, nftrender.Naming{}, ipvsrender.Naming{}, userspace.Naming{},
		} {
			if f, ok := naming.Frontend(id); ok {
				t.Errorf("%T: %q is told as %v", naming, id, f)
			}
		}
	}
}

// TestNaming_AllocatesNothing: reading a frontend from a name allocates nothing. The ledger reads a name for every
// changed claim.
func TestNaming_AllocatesNothing(t *testing.T) {
	address, transport := "\xc0\x00\x02\x01", "\x06\x00\x00\x00\x00\x50\x00\x00"
	for _, c := range []struct {
		naming          dataplane.Naming
		container, name string
	}{
		{iptrender.Naming{}, "nat/KUBE-SERVICES", "\x01" + address + "\x06\x00\x50"},
		{ipvsrender.Naming{}, ipvsrender.ContainerServer, "tcp 192.0.2.1:80"},
		{userspace.Naming{}, "listener", "tcp/192.0.2.1:80"},
		{nftrender.Naming{}, in("frontends"), address + transport},
		{nftrender.Naming{}, in("local-endpoints"), address + transport + "\x01\x00\x00\x00"},
		{nftrender.Naming{}, in("allowed-sources"), address + transport + "\xcb\x00\x71\x00" + address + transport + "\xcb\x00\x71\x7f"},
	} {
		id := dataplane.ID{Container: c.container, Name: c.name}
		var f service.Frontend
		var told bool
		n := testing.AllocsPerRun(100, func() { f, told = c.naming.Frontend(id) })
		if n != 0 || !told || f.String() != "192.0.2.1:80/tcp" {
			t.Errorf("%T: %q reads as %v, %v with %v allocations, want 192.0.2.1:80/tcp with none", c.naming, id, f, told, n)
		}
	}
}

// TestNaming_EveryObjectOfFrontend renders a Service with slots and source ranges, and counts the objects that are
// attributed to a frontend.
func TestNaming_EveryObjectOfFrontend(t *testing.T) {
	endpoints := map[service.Family]string{service.IPv4: "10.0.0.1:8080", service.IPv6: "[fd00::1]:8080"}
	ranges := map[service.Family][]netip.Prefix{
		service.IPv4: {netip.MustParsePrefix("198.51.100.0/25"), netip.MustParsePrefix("203.0.113.7/32")},
		service.IPv6: {netip.MustParsePrefix("2001:db8:ffff::/112")},
	}
	for _, family := range service.Families {
		served := service.Endpoint{AddrPort: netip.MustParseAddrPort(endpoints[family]), Local: true}
		port := shadowable(family, served)
		port.ExternalLocal, port.Local, port.SourceRanges, port.DenyRanges = true, port.Cluster, ranges[family], ranges[family]
		view := &service.View{Key: service.Key{Namespace: "ns", Name: "a"}}
		view.Ports[family] = []service.PortView{port}
		renderer := nftrender.NewRenderer(family, nftrender.Options{MasqueradeBit: 14})
		found := toldOf(t, renderer.Naming(), renderer.Service(context.Background(), view, &service.NodeFacts{}), &port)
		expectTold(t, found, map[string]int{
			in("frontends"): 3, in("nodeports"): 1, in("cluster-endpoints"): 3, in("local-endpoints"): 2,
			in("nodeport-cluster-endpoints"): 1, in("nodeport-local-endpoints"): 1,
			in("firewalled"): 1, in("allowed-sources"): len(ranges[family]), in("admitted"): 2, in("out-of-range"): 2,
			in("denied-sources"): 2 * len(ranges[family]), in("nodeport-denied-sources"): len(ranges[family]),
			in("nodeport-admitted"): 1, in("nodeport-out-of-range"): 1,
		})
		other := iptrender.NewRenderer(family, iptrender.Options{MasqueradeBit: 14})
		found = toldOf(t, other.Naming(), other.Service(context.Background(), view, &service.NodeFacts{}), &port)
		expectTold(t, found, map[string]int{"nat/KUBE-SERVICES": 3, "nat/KUBE-NODEPORTS": 1, "filter/KUBE-PROXY-FIREWALL": 1,
			"filter/KUBE-EXTERNAL-SERVICES": 2, "filter/KUBE-EXT-NODEPORTS": 1})
	}
}

// toldOf counts what is told as an object of a frontend, by container, and wants each to be a frontend
// of the port. The parts of a map that is divided count as one.
func toldOf(t *testing.T, naming dataplane.Naming, objects []dataplane.Object, port *service.PortView) map[string]int {
	t.Helper()
	found := make(map[string]int)
	for _, o := range objects {
		f, told := naming.Frontend(o.ID)
		if !told {
			continue
		}
		addrs := append([]netip.Addr{port.ClusterIP}, slices.Concat(port.ExternalIPs, port.LoadBalancerVIPs)...)
		if f.Protocol != port.Protocol || f.Port != port.NodePort && (f.Port != port.Port || !slices.Contains(addrs, f.Addr)) {
			t.Errorf("%q is told as %v", o.ID, f)
		}
		container := o.ID.Container
		if base := len(container) - 2; strings.HasPrefix(container, in("cluster-endpoints")+"-") {
			container = container[:base]
		}
		found[container]++
	}
	return found
}

func expectTold(t *testing.T, found, want map[string]int) {
	t.Helper()
	if !maps.Equal(found, want) {
		t.Errorf("told are %v, want %v", found, want)
	}
}

// TestNaming_IgnoresShortNames: names that are too short are not read as a frontend.
func TestNaming_IgnoresShortNames(t *testing.T) {
	for _, id := range []dataplane.ID{
		{Container: in("local-endpoints"), Name: "abc"}, {Container: in("nodeport-local-endpoints"), Name: "\x06\x00\x00\x00\x00\x50\x00\x00"},
		{Container: in("firewalled")}, {Container: in("allowed-sources"), Name: ""}, {Container: in("allowed-sources"), Name: "x"}, {Container: in("frontends"), Name: "x"},
	} {
		if f, told := (nftrender.Naming{}).Frontend(id); told {
			t.Errorf("%q is told as %v", id, f)
		}
	}
}

// TestNaming_SetEntriesMatchServer: in IPVS mode, set entries of a frontend are attributed to the same frontend as its
// virtual server, and every virtual server is a frontend.
func TestNaming_SetEntriesMatchServer(t *testing.T) {
	for _, family := range service.Families {
		endpoint := service.Endpoint{AddrPort: netip.MustParseAddrPort([]string{"10.0.0.1:8080", "[fd00::1]:8080"}[family]), Local: true}
		port := shadowable(family, endpoint)
		port.ExternalLocal, port.Local = true, port.Cluster
		port.SourceRanges = []netip.Prefix{netip.MustParsePrefix([]string{"203.0.113.0/25", "2001:db8:ffff::/112"}[family])}
		view := &service.View{Key: service.Key{Namespace: "ns", Name: "a"}}
		view.Ports[family] = []service.PortView{port}
		facts := &service.NodeFacts{}
		facts.NodePorts[family] = service.NodePortAddresses{All: true, Host: []netip.Addr{endpoint.AddrPort.Addr().Next()}}
		renderer := ipvsrender.NewRenderer(family, ipvsrender.Options{MasqueradeBit: 14})
		objects := renderer.Service(context.Background(), view, facts)
		found := map[string]int{}
		for container, n := range toldOf(t, ipvsrender.Naming{}, objects, &port) {
			if at := strings.LastIndexByte(container, '-'); at >= 0 {
				container = container[:at] // without the digest
			}
			found[container] = n
		}
		prefix := []string{"set/KUBE-", "set/KUBE-6-"}[family]
		for _, name := range []string{"CLUSTER-IP", "LOAD-BALANCER", "LB-FIREWALL", "EXTERNAL-IP-LOCAL"} {
			if found[prefix+name] == 0 {
				t.Errorf("%v: nothing in %s is told; %v is", family, prefix+name, found)
			}
		}
		if found[prefix+"LOOP-BACK"] > 0 || found[prefix+"IPVS-IPS"] > 0 {
			t.Errorf("%v: facts about pods and addresses are told: %v", family, found)
		}
		if servers := found[ipvsrender.ContainerServer]; servers != 4 {
			t.Errorf("%v: %d virtual servers, want 4", family, servers)
		}
		for _, o := range objects {
			isServer := o.ID.Container == ipvsrender.ContainerServer
			if f, ok := (ipvsrender.Naming{}).Frontend(o.ID); isServer && (!ok || ipvsrender.ServerID(f) != o.ID) {
				t.Errorf("%v: the frontend of %q is %v, %v", family, o.ID.Name, f, ok)
			}
		}
	}
}

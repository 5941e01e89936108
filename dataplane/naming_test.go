package dataplane_test

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/iptables"
	"github.com/sluice-proxy/sluice/dataplane/ipvs"
	"github.com/sluice-proxy/sluice/dataplane/nftables"
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
func in(set string) string { return "@" + nftables.SetName(set) }

func TestWhatIsNoFrontendIsNotTold(t *testing.T) {
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
		for _, naming := range []dataplane.Naming{iptables.Naming{}, nftables.Naming{}, ipvs.Naming{}, userspace.Naming{}} {
			if f, ok := naming.Frontend(id); ok {
				t.Errorf("%T: %q is told as %v", naming, id, f)
			}
		}
	}
}

// TestReadingAllocatesNothing: the ledger reads identities for every claim that changes.
func TestReadingAllocatesNothing(t *testing.T) {
	address, transport := "\xc0\x00\x02\x01", "\x06\x00\x00\x00\x00\x50\x00\x00"
	for _, c := range []struct {
		naming    dataplane.Naming
		container string
		name      string
		want      string
	}{
		{iptables.Naming{}, "nat/KUBE-SERVICES", "\x01" + address + "\x06\x00\x50", "192.0.2.1:80/tcp"},
		{userspace.Naming{}, "listener", "tcp/192.0.2.1:80", "192.0.2.1:80/tcp"},
		{nftables.Naming{}, in("frontends"), address + transport, "192.0.2.1:80/tcp"},
		{nftables.Naming{}, in("local-endpoints"), address + transport + "\x01\x00\x00\x00", in("frontends")},
	} {
		id := dataplane.ID{Container: c.container, Name: c.name}
		var f service.Frontend
		var lead dataplane.ID
		var told, follows bool
		n := testing.AllocsPerRun(100, func() {
			f, told = c.naming.Frontend(id)
			lead, follows = c.naming.Lead(id)
			c.naming.LedLead(id)
			c.naming.Leads(id)
		})
		got := lead.Container
		if told && !follows {
			got = f.String()
		}
		if n != 0 || got != c.want {
			t.Errorf("%T: %q reads as %q with %v allocations, want %q with none", c.naming, id, got, n, c.want)
		}
	}
}

// TestWhatFollowsAFrontendLeadsToIt renders a Service with all that elements follow,
// and finds the lead of each among what came out.
func TestWhatFollowsAFrontendLeadsToIt(t *testing.T) {
	endpoints := map[service.Family]string{service.IPv4: "10.0.0.1:8080", service.IPv6: "[fd00::1]:8080"}
	ranges := map[service.Family][]netip.Prefix{
		service.IPv4: {netip.MustParsePrefix("198.51.100.0/25"), netip.MustParsePrefix("203.0.113.7/32")},
		service.IPv6: {netip.MustParsePrefix("2001:db8:ffff::/112")},
	}
	for _, family := range service.Families {
		served := service.Endpoint{AddrPort: netip.MustParseAddrPort(endpoints[family]), Local: true}
		port := shadowable(family, served)
		port.ExternalLocal, port.Local, port.SourceRanges = true, port.Cluster, ranges[family]
		view := &service.View{Key: service.Key{Namespace: "ns", Name: "a"}}
		view.Ports[family] = []service.PortView{port}
		renderer := nftables.NewRenderer(family, nftables.Options{MasqueradeBit: 14})
		found := followersOf(t, renderer.Naming(), renderer.Service(context.Background(), view, &service.NodeFacts{}))
		cluster := 0
		for _, shard := range "abcdefgh" {
			cluster += found[in("cluster-endpoints")+"-"+string(shard)]
		}
		want := map[string]int{
			in("local-endpoints"): 2, in("nodeport-cluster-endpoints"): 1, in("nodeport-local-endpoints"): 1,
			in("firewalled"): 1, in("allowed-sources"): len(ranges[family]),
		}
		for container, n := range want {
			if found[container] != n {
				t.Errorf("%v: %d elements of %s follow, want %d", family, found[container], container, n)
			}
		}
		if cluster != 3 {
			t.Errorf("%v: %d slots of addresses follow, want 3", family, cluster)
		}
		other := iptables.NewRenderer(family, iptables.Options{MasqueradeBit: 14})
		if found := followersOf(t, other.Naming(), other.Service(context.Background(), view, &service.NodeFacts{})); len(found) > 0 {
			t.Errorf("%v: in iptables mode %v follow", family, found)
		}
	}
}

// followersOf counts by container what follows, and wants every lead to be there.
func followersOf(t *testing.T, naming dataplane.Naming, objects []dataplane.Object) map[string]int {
	t.Helper()
	there := make(map[dataplane.ID]bool)
	for _, o := range objects {
		there[o.ID] = true
	}
	found := make(map[string]int)
	for _, o := range objects {
		lead, follows := naming.Lead(o.ID)
		if !follows {
			continue
		}
		found[o.ID.Container]++
		if !there[lead] || !naming.Leads(lead) {
			t.Errorf("%q follows %q, which is not there or leads nobody", o.ID, lead)
		}
	}
	return found
}

func TestNamesTooShortFollowNobody(t *testing.T) {
	for _, id := range []dataplane.ID{
		{Container: in("local-endpoints"), Name: "abc"}, {Container: in("firewalled")}, {Container: in("allowed-sources"), Name: ""}, {Container: in("frontends"), Name: "x"},
	} {
		if lead, follows := (nftables.Naming{}).Lead(id); follows && len(lead.Name) == 0 {
			t.Errorf("%q follows %q", id, lead)
		}
	}
	if _, follows := (nftables.Naming{}).Lead(dataplane.ID{Container: in("local-endpoints"), Name: "abc"}); follows {
		t.Error("a name without room for a slot follows somebody")
	}
}

// TestEntriesOfSetsLeadToTheirServer: in ipvs mode, what is in sets about a frontend
// goes with its virtual server, and every virtual server is a frontend.
func TestEntriesOfSetsLeadToTheirServer(t *testing.T) {
	for _, family := range service.Families {
		endpoint := service.Endpoint{AddrPort: netip.MustParseAddrPort([]string{"10.0.0.1:8080", "[fd00::1]:8080"}[family]), Local: true}
		port := shadowable(family, endpoint)
		port.ExternalLocal, port.Local = true, port.Cluster
		port.SourceRanges = []netip.Prefix{netip.MustParsePrefix([]string{"203.0.113.0/25", "2001:db8:ffff::/112"}[family])}
		view := &service.View{Key: service.Key{Namespace: "ns", Name: "a"}}
		view.Ports[family] = []service.PortView{port}
		facts := &service.NodeFacts{}
		facts.NodePorts[family] = service.NodePortAddresses{All: true, Host: []netip.Addr{endpoint.AddrPort.Addr().Next()}}
		objects := ipvs.NewRenderer(family, ipvs.Options{MasqueradeBit: 14}).Service(context.Background(), view, facts)
		found := map[string]int{}
		for container, n := range followersOf(t, ipvs.Naming{}, objects) {
			found[container[:strings.LastIndexByte(container, '-')]] = n // without the digest
		}
		want := []string{"CLUSTER-IP", "LOAD-BALANCER", "LB-FIREWALL", "EXTERNAL-IP-LOCAL"}
		prefix := []string{"set/KUBE-", "set/KUBE-6-"}[family]
		for _, name := range want {
			if found[prefix+name] == 0 {
				t.Errorf("%v: nothing in %s follows; %v does", family, prefix+name, found)
			}
		}
		if found[prefix+"LOOP-BACK"] > 0 || found[prefix+"IPVS-IPS"] > 0 {
			t.Errorf("%v: facts about pods and addresses follow a Service: %v", family, found)
		}
		servers := 0
		for _, o := range objects {
			if o.ID.Container == ipvs.ContainerServer {
				servers++
				f, ok := (ipvs.Naming{}).Frontend(o.ID)
				if !ok || ipvs.ServerID(f) != o.ID {
					t.Errorf("%v: the frontend of %q is %v, %v", family, o.ID.Name, f, ok)
				}
			}
		}
		if servers != 4 {
			t.Errorf("%v: %d virtual servers, want 4", family, servers)
		}
	}
}

package dataplane_test

import (
	"net/netip"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/iptables"
	"github.com/sluice-proxy/sluice/dataplane/ipvs"
	"github.com/sluice-proxy/sluice/dataplane/nftables"
	"github.com/sluice-proxy/sluice/service"
)

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
		found := followersOf(t, renderer.Service(view, &service.NodeFacts{}))
		cluster := 0
		for _, shard := range "abcdefgh" {
			cluster += found["@cluster-endpoints-"+string(shard)]
		}
		want := map[string]int{
			"@local-endpoints": 2, "@nodeport-cluster-endpoints": 1, "@nodeport-local-endpoints": 1,
			"@firewalled": 1, "@allowed-sources": len(ranges[family]),
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
		if found := followersOf(t, other.Service(view, &service.NodeFacts{})); len(found) > 0 {
			t.Errorf("%v: in iptables mode %v follow", family, found)
		}
	}
}

// followersOf counts by container what follows, and wants every lead to be there.
func followersOf(t *testing.T, objects []dataplane.Object) map[string]int {
	t.Helper()
	there := make(map[dataplane.ID]bool)
	for _, o := range objects {
		there[o.ID] = true
	}
	found := make(map[string]int)
	for _, o := range objects {
		lead, follows := o.ID.Lead()
		if !follows {
			continue
		}
		found[o.ID.Container]++
		if !there[lead] || !lead.Leads() {
			t.Errorf("%q follows %q, which is not there or leads nobody", o.ID, lead)
		}
	}
	return found
}

func TestNamesTooShortFollowNobody(t *testing.T) {
	for _, id := range []dataplane.ID{
		{Container: "@local-endpoints", Name: "abc"}, {Container: "@firewalled"}, {Container: "@allowed-sources", Name: ""}, {Container: "@frontends", Name: "x"},
	} {
		if lead, follows := id.Lead(); follows && len(lead.Name) == 0 {
			t.Errorf("%q follows %q", id, lead)
		}
	}
	if _, follows := (dataplane.ID{Container: "@local-endpoints", Name: "abc"}).Lead(); follows {
		t.Error("a name without room for a slot follows somebody")
	}
}

// TestEntriesOfSetsLeadToTheirServer: in ipvs mode, what is in sets about a frontend
// goes with its virtual server, and every virtual server is somebody's frontend.
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
		objects := ipvs.NewRenderer(family, ipvs.Options{MasqueradeBit: 14}).Service(view, facts)
		found := followersOf(t, objects)
		want := []string{"CLUSTER-IP", "LOAD-BALANCER", "LOAD-BALANCER-FW", "EXTERNAL-IP-LOCAL"}
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
				f, ok := o.ID.Frontend()
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

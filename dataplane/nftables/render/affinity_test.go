// SPDX-License-Identifier: Apache-2.0

package render

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// TestEndpointIDs: the ID of an endpoint is its address if possible, is unique, and does not depend on the order.
func TestEndpointIDs(t *testing.T) {
	of := func(texts ...string) (list []service.Endpoint) {
		for _, text := range texts {
			list = append(list, service.Endpoint{AddrPort: netip.MustParseAddrPort(text)})
		}
		return list
	}
	shared := endpointIDs(of("10.0.0.1:80", "10.0.0.1:81"), &service.PortView{})
	taken := shared[netip.MustParseAddrPort("10.0.0.1:80")]
	for _, c := range []struct {
		endpoints []service.Endpoint
		plain     int
	}{
		{of("10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:81"), 3},
		{of("10.0.0.1:80", "10.0.0.2:80", "10.0.0.1:81"), 1},
		{of("10.0.0.1:80", "10.0.0.1:81", taken.String()+":80"), 1}, // an endpoint in the reserved range
		{of("[fd00::1]:80", "[fd00::1]:81", "[fd00::2]:80"), 1},
	} {
		ids := endpointIDs(c.endpoints, &service.PortView{})
		plain, seen := 0, map[netip.Addr]bool{}
		for e, id := range ids {
			if id == e.Addr() {
				plain++
			}
			if seen[id] || id.Is4() != e.Addr().Is4() {
				t.Errorf("%v: %v for %v", c.endpoints, id, e)
			}
			seen[id] = true
		}
		slices.Reverse(c.endpoints)
		if plain != c.plain || len(ids) != len(c.endpoints) || !maps.Equal(ids, endpointIDs(c.endpoints, &service.PortView{})) {
			t.Errorf("%v: %v, want %d addresses", c.endpoints, ids, c.plain)
		}
	}
}

// TestEndpointIDs_FrontendKeepsAddress: an endpoint that is a frontend has its address as ID, even if other endpoints
// have the same address, in any order.
func TestEndpointIDs_FrontendKeepsAddress(t *testing.T) {
	node := netip.MustParseAddr("192.0.2.1")
	at := func(port uint16) netip.AddrPort { return netip.AddrPortFrom(node, port) }
	endpoints := []service.Endpoint{{AddrPort: at(8080)}, {AddrPort: at(80)}, {AddrPort: at(30080)}}
	for name, c := range map[string]struct {
		port service.PortView
		want netip.AddrPort
	}{
		"an external IP":   {service.PortView{Port: 80, ExternalIPs: []netip.Addr{node}}, at(80)},
		"a load balancer":  {service.PortView{Port: 80, LoadBalancerVIPs: []netip.Addr{node}, NodePort: 30080}, at(80)},
		"a node port":      {service.PortView{Port: 80, NodePort: 30080}, at(30080)},
		"no frontend here": {service.PortView{Port: 80, NodePort: 30081}, netip.AddrPort{}},
	} {
		for range 2 {
			slices.Reverse(endpoints)
			for e, id := range endpointIDs(endpoints, &c.port) {
				if (id == node) != (e == c.want) {
					t.Errorf("%s: %v for %v, want the address for %v alone", name, id, e, c.want)
				}
			}
		}
	}
}

// TestAffinity_ReplacedEndpointFewElements: with affinity, a replaced endpoint changes only elements, and their number
// does not grow with the Service.
func TestAffinity_ReplacedEndpointFewElements(t *testing.T) {
	const most, rounds = 16, 20
	render := func(endpoints, without int) map[dataplane.ID]dataplane.Object {
		view := &service.View{Key: service.Key{Namespace: "ns", Name: "svc"}}
		port := service.PortView{
			Name: "http", Port: 80, NodePort: 30080, HasAny: true, ClusterIP: netip.MustParseAddr("172.30.0.1"), AffinitySeconds: 60,
		}
		for i := range endpoints {
			addr := netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})
			if i == without {
				addr = netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)})
			}
			port.Cluster = append(port.Cluster, service.Endpoint{AddrPort: netip.AddrPortFrom(addr, 8080)})
		}
		view.Ports[service.IPv4] = []service.PortView{port}
		objects := make(map[dataplane.ID]dataplane.Object)
		for _, o := range NewRenderer(service.IPv4, Options{}).Service(context.Background(), view, &service.NodeFacts{}) {
			objects[o.ID] = o
		}
		return objects
	}
	for _, endpoints := range []int{10, 100, 1000} {
		before, sum := render(endpoints, -1), 0
		for round := range rounds {
			after, changed := render(endpoints, round*endpoints/rounds), map[dataplane.ID]bool{}
			for _, pair := range [][2]map[dataplane.ID]dataplane.Object{{before, after}, {after, before}} {
				for id, o := range pair[0] {
					if other, ok := pair[1][id]; !ok || other.Body != o.Body {
						changed[id] = true
						if o.Kind != dataplane.Element {
							t.Errorf("%d endpoints: %v changes", endpoints, id)
						}
					}
				}
			}
			if sum += len(changed); len(changed) > most {
				t.Errorf("%d endpoints: %d objects change, want %d at most", endpoints, len(changed), most)
			}
		}
		t.Logf("%d endpoints: %.1f objects", endpoints, float64(sum)/rounds)
	}
}

// TestAffinity_LoadBalancerSourceRanges: a Service with affinity checks source ranges at addresses of a load balancer,
// and only if it has both.
func TestAffinity_LoadBalancerSourceRanges(t *testing.T) {
	vips, ranges := []netip.Addr{netip.MustParseAddr("192.0.2.1")}, []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")}
	for _, c := range []struct {
		vips   []netip.Addr
		ranges []netip.Prefix
		want   bool
	}{{nil, nil, false}, {vips, nil, false}, {nil, ranges, false}, {vips, ranges, true}} {
		view := &service.View{Key: service.Key{Namespace: "ns", Name: "svc"}}
		view.Ports[service.IPv4] = []service.PortView{{
			Name: "http", Port: 80, HasAny: true, ClusterIP: netip.MustParseAddr("172.30.0.1"), AffinitySeconds: 60,
			ExternalIPs: []netip.Addr{netip.MustParseAddr("192.0.2.2")}, LoadBalancerVIPs: c.vips, SourceRanges: c.ranges,
			Cluster: []service.Endpoint{{AddrPort: netip.MustParseAddrPort("10.0.0.1:8080")}},
		}}
		asks := false
		for _, o := range NewRenderer(service.IPv4, Options{}).Service(context.Background(), view, &service.NodeFacts{}) {
			asks = asks || slices.Contains(o.Refs(), chainID(chainFirewallCheck))
		}
		if asks != c.want {
			t.Errorf("VIPs %v, ranges %v: asks for the source ranges: %v", c.vips, c.ranges, asks)
		}
	}
}

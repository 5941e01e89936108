// SPDX-License-Identifier: Apache-2.0

package render

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// TestPortBase_MatchesKubeProxy compares names with those of kube-proxy v1.37.
func TestPortBase_MatchesKubeProxy(t *testing.T) {
	for _, c := range []struct {
		namespace, name, port string
		protocol              service.Protocol
		want                  string
	}{
		{"ns1", "svc1", "p80", service.TCP, "ULMVA6XW-ns1/svc1/tcp/p80"},
		{"ns1", "svc1", "", service.TCP, "6KJ5P52A-ns1/svc1/tcp/"},
		{"default", "kubernetes", "https", service.TCP, "2QRHZV4L-default/kubernetes/tcp/https"},
		{"kube-system", "kube-dns", "dns", service.UDP, "FY5PMXPG-kube-system/kube-dns/udp/dns"},
	} {
		key, port := service.Key{Namespace: c.namespace, Name: c.name}, &service.PortView{Name: c.port, Protocol: c.protocol}
		if got := portBase(key, port); got != c.want {
			t.Errorf("got %s, want %s", got, c.want)
		}
	}
}

// TestPortBase_LongNamesTruncated: long names are truncated to unique names.
func TestPortBase_LongNamesTruncated(t *testing.T) {
	long := strings.Repeat("x", 63)
	key := service.Key{Namespace: long, Name: long}
	one := portBase(key, &service.PortView{Name: long + long})
	other := portBase(key, &service.PortView{Name: long + long + "y"})
	if len(one) != baseMax || !strings.HasSuffix(one, "...") || one == other {
		t.Errorf("cut to %d characters: %s, %s", len(one), one, other)
	}
}

// TestShardOf_EvenDistribution: frontends are distributed evenly over the shards.
func TestShardOf_EvenDistribution(t *testing.T) {
	counts := map[string]int{}
	for n := range 4000 {
		counts[shardOf(service.Frontend{Addr: netip.AddrFrom4([4]byte{10, 96, byte(n >> 8), byte(n)}), Port: 80})]++
	}
	for shard, n := range counts {
		if n < 300 || n > 700 {
			t.Errorf("shard %s holds %d of 4,000 frontends", shard, n)
		}
	}
	if len(counts) != len(shards) {
		t.Errorf("%d shards are used, want %d", len(counts), len(shards))
	}
}

// TestSharedSets_EachHasRole: every shared set has a role. The elements of a set without a role would be taken for
// facts that Services share, which mixes the slots of Services.
func TestSharedSets_EachHasRole(t *testing.T) {
	transport := []field{fieldProtocol, fieldPort}
	for _, s := range sharedSets {
		key := s.key
		if key[0] == fieldDaddr {
			key = key[1:]
		}
		begins := len(key) >= len(transport) && slices.Equal(key[:len(transport)], transport)
		if s.role != ofFrontend && s.role != shared || begins != (s.role == ofFrontend) {
			t.Errorf("set %s: role %d and key %v do not go together", s.name, s.role, s.key)
		}
		if setIn[elementsOf+s.name] == nil || setIn[elementsOf+s.name].name != s.name {
			t.Errorf("set %s is not known by its container", s.name)
		}
	}
}

// TestSharedSets_RenderedSetsKnown: the scaffold creates exactly the sets that have a role, and elements of Services
// are in no other sets.
func TestSharedSets_RenderedSetsKnown(t *testing.T) {
	for _, family := range service.Families {
		r, counting := NewRenderer(family, Options{MasqueradeBit: 14}), NewRenderer(family, Options{CountEndpoints: true})
		created := map[string]bool{}
		for _, o := range slices.Concat(r.Node(&service.NodeFacts{}), counting.Node(&service.NodeFacts{})) {
			if o.ID.Container != ContainerSet {
				continue
			}
			created[o.ID.Name] = true
			if setIn[elementsOf+o.ID.Name] == nil {
				t.Errorf("%v: the scaffold creates set %s, which has no role", family, o.ID.Name)
			}
		}
		if len(created) != len(setIn) {
			t.Errorf("%v: the scaffolds create %d sets, and %d have a role", family, len(created), len(setIn))
		}
		seen := map[string]bool{}
		for _, o := range slices.Concat(everything(r, family), everything(counting, family)) {
			if o.Kind != dataplane.Element || seen[o.ID.Container] {
				continue
			}
			if strings.Contains(o.ID.Container, "/") {
				continue // named after one Service port
			}
			seen[o.ID.Container] = true
			if setIn[o.ID.Container] == nil {
				t.Errorf("%v: an element of %s, which has no role", family, o.ID.Container)
			}
			if f, told := (Naming{}).Frontend(o.ID); told != (setIn[o.ID.Container].role == ofFrontend) {
				t.Errorf("%v: %q of %s is for %v: %v", family, o.ID.Name, o.ID.Container, f, told)
			}
		}
		if len(seen) < 12 {
			t.Errorf("%v: elements of %d sets only: this proves little", family, len(seen))
		}
	}
}

// everything returns the objects of Services that use every feature.
func everything(r *Renderer, family service.Family) []dataplane.Object {
	text := [...][6]string{
		service.IPv4: {"172.30.0.41", "192.0.2.1", "192.0.2.9", "10.0.0.1:8080", "198.51.100.0/25", "192.0.2.10"},
		service.IPv6: {"fd00:172:30::41", "2001:db8::1", "2001:db8::9", "[fd00::1]:8080", "2001:db8:ffff::/112", "2001:db8::10"},
	}[family]
	endpoint := service.Endpoint{AddrPort: netip.MustParseAddrPort(text[3]), Local: true}
	facts := &service.NodeFacts{}
	facts.NodePorts[family].Addresses = []netip.Addr{netip.MustParseAddr(text[5])}
	objects := r.Node(facts)
	for i, change := range []func(*service.PortView){
		func(*service.PortView) {},
		func(p *service.PortView) { p.ExternalLocal, p.Local = true, p.Cluster },
		func(p *service.PortView) { p.ExternalLocal = true },
		func(p *service.PortView) { p.ExternalLocal, p.InternalLocal = true, true },
		func(p *service.PortView) { p.SourceRanges = []netip.Prefix{netip.MustParsePrefix(text[4])} },
		func(p *service.PortView) { p.AffinitySeconds = 10800 },
		func(p *service.PortView) { p.Cluster, p.HasAny = nil, false },
	} {
		port := service.PortView{
			Name: "web", Protocol: service.UDP, Port: uint16(80 + i), NodePort: uint16(30080 + i),
			ClusterIP:        netip.MustParseAddr(text[0]),
			ExternalIPs:      []netip.Addr{netip.MustParseAddr(text[1])},
			LoadBalancerVIPs: []netip.Addr{netip.MustParseAddr(text[2])},
			Cluster:          []service.Endpoint{endpoint}, HasAny: true,
		}
		change(&port)
		view := &service.View{Key: service.Key{Namespace: "ns", Name: string(rune('a' + i))}}
		view.Ports[family] = []service.PortView{port}
		objects = append(objects, r.Service(context.Background(), view, facts)...)
	}
	return objects
}

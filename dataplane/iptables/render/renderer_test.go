// SPDX-License-Identifier: Apache-2.0

package render_test

import (
	"context"
	"fmt"
	"math"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/iptables/render"
	"github.com/sluice-proxy/sluice/dataplane/iptables/tree"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/rendertest"
)

func newTestRenderer(family service.Family) *render.Renderer {
	return render.NewRenderer(family, render.Options{MasqueradeBit: 14})
}

// TestRender_Nothing: a view without ports of the family renders to nothing, not even the health port.
func TestRender_Nothing(t *testing.T) {
	w := rendertest.WorldOf(service.IPv4)
	view := w.View(w.OpenPort())
	view.HealthCheckNodePort = 32000
	facts := rendertest.WorldOf(service.IPv6).Facts()
	if got := newTestRenderer(service.IPv6).Service(context.Background(), view, facts); len(got) != 0 {
		t.Errorf("IPv6 of an IPv4 Service renders %d objects, want none", len(got))
	}
}

// TestRender_IsPure: equal views render to equal objects, regardless of earlier renderings.
func TestRender_IsPure(t *testing.T) {
	for _, c := range rendertest.IPTables {
		for _, family := range service.Families {
			first := rendertest.RenderIPTables(c, family)
			renderer := newTestRenderer(family)
			w := rendertest.WorldOf(family)
			renderer.Service(context.Background(), w.View(w.Port()), w.Facts())
			if again := rendertest.RenderIPTables(c, family); !reflect.DeepEqual(first, again) {
				t.Errorf("%s %s: differs the second time", c.Name, family)
			}
		}
	}
}

// TestRender_RulesPerEndpoint: a Service takes one rule per endpoint, one hairpin rule per endpoint on this node, and a
// constant number, with any frontends.
func TestRender_RulesPerEndpoint(t *testing.T) {
	const constant, frontends = 8, 4
	for _, n := range []int{1, 10, 1000} {
		view, facts := manyEndpoints(n)
		objects := newTestRenderer(service.IPv4).Service(context.Background(), view, facts)
		rules := 0
		for _, o := range objects {
			rules += len(render.RuleLines(&o))
		}
		if local := 1; rules > n+local+constant+frontends {
			t.Errorf("%d endpoints make %d rules, want at most %d more than endpoints", n, rules, constant+frontends+local)
		}
	}
}

// TestRender_BalancingIsFair: each endpoint is chosen with the same probability, within the precision of 31 random
// bits.
func TestRender_BalancingIsFair(t *testing.T) {
	for _, n := range []int{1, 2, 3, 7, 100} {
		view, facts := manyEndpoints(n)
		rest, rules := 1.0, 0
		for _, o := range newTestRenderer(service.IPv4).Service(context.Background(), view, facts) {
			if !strings.HasPrefix(o.ID.Name, "KUBE-SVC-") {
				continue
			}
			for _, line := range render.RuleLines(&o) {
				match, _, isDNAT := strings.Cut(line, " -j DNAT ")
				if !isDNAT {
					continue
				}
				chance := 1.0
				if _, text, found := strings.Cut(match, "--probability "); found {
					chance, _ = strconv.ParseFloat(text, 64)
				}
				if share := rest * chance; math.Abs(share*float64(n)-1) > 1e-6 {
					t.Errorf("endpoint %d of %d is chosen with probability %v", rules, n, share)
				}
				rest, rules = rest*(1-chance), rules+1
			}
		}
		if rules != n || rest != 0 {
			t.Errorf("%d endpoints: %d rules, and %v of the packets are left over", n, rules, rest)
		}
	}
}

// manyEndpoints returns a port with every kind of frontend and n endpoints, one of them on this
// node.
func manyEndpoints(n int) (*service.View, *service.NodeFacts) {
	w := rendertest.WorldOf(service.IPv4)
	p := w.OpenPort()
	p.Cluster = nil
	for i := range n {
		addr := netip.AddrFrom4([4]byte{10, 180, byte(i >> 8), byte(i)})
		p.Cluster = append(p.Cluster, service.Endpoint{AddrPort: netip.AddrPortFrom(addr, 8080), Local: i == 0})
	}
	return w.View(p), w.Facts()
}

// TestRender_FirstPortKeepsElement: if two ports of one Service claim the same element, the first port gets it.
func TestRender_FirstPortKeepsElement(t *testing.T) {
	w := rendertest.WorldOf(service.IPv4)
	first, second := w.OpenPort(), w.OpenPort()
	second.Name = "other"
	objects := newTestRenderer(service.IPv4).Service(context.Background(), w.View(first, second), w.Facts())
	fragment := dataplane.NewFragment(service.Key{}, objects)
	id := dataplane.ID{Container: "nat/KUBE-SERVICES", Name: tree.DestinationKey(w.ClusterIP, service.TCP, 80)}
	i := slices.IndexFunc(fragment.Objects, func(o dataplane.Object) bool { return o.ID == id })
	if i < 0 || !strings.Contains(fragment.Objects[i].Body, `"ns1/svc1:p80 cluster IP"`) {
		t.Errorf("the ClusterIP does not lead to the first port: %s", listing(fragment.Objects))
	}
}

// TestRender_HairpinsNameNoService: Services with a common endpoint render equal hairpin rules.
func TestRender_HairpinsNameNoService(t *testing.T) {
	w := rendertest.WorldOf(service.IPv4)
	renderer := newTestRenderer(service.IPv4)
	var bodies []string
	for _, name := range []string{"a", "b"} {
		view := w.View(w.Port())
		view.Key.Name = name
		for _, o := range renderer.Service(context.Background(), view, w.Facts()) {
			if strings.Contains(o.ID.Container, "KUBE-SVC-HAIRPIN") {
				bodies = append(bodies, o.Body)
			}
		}
	}
	if len(bodies) != 2 || bodies[0] != bodies[1] {
		t.Errorf("hairpin rules of two Services: %q, want two equal ones", bodies)
	}
}

// TestRender_RefsAreJumps: each object refers to exactly the chains that it jumps to, and they exist, in each case and
// in the dispatch trees.
func TestRender_RefsAreJumps(t *testing.T) {
	check := func(t *testing.T, objects []dataplane.Object) {
		t.Helper()
		exists := map[dataplane.ID]bool{}
		for _, o := range objects {
			exists[o.ID] = true
		}
		for _, o := range objects {
			table, _ := rendertest.IPTablesPlace(o)
			var jumps []dataplane.ID
			for _, line := range render.RuleLines(&o) {
				_, target, _ := strings.Cut(line, "-j ")
				id := dataplane.ID{Container: table, Name: target}
				if strings.HasPrefix(target, "KUBE-") && !slices.Contains(jumps, id) {
					jumps = append(jumps, id)
				}
			}
			slices.SortFunc(jumps, dataplane.ID.Compare)
			refs := slices.SortedFunc(slices.Values(o.Refs()), dataplane.ID.Compare)
			if !slices.Equal(refs, jumps) {
				t.Errorf("%v refers to %v, but jumps to %v", o.ID, refs, jumps)
			}
			for _, ref := range o.Refs() {
				if !exists[ref] {
					t.Errorf("%v refers to %v, which does not exist", o.ID, ref)
				}
			}
		}
	}
	for _, family := range service.Families {
		for _, c := range rendertest.IPTables {
			t.Run(fmt.Sprintf("%s/%s", c.Name, family), func(t *testing.T) {
				check(t, rendertest.IPTablesNode(family, rendertest.RenderIPTables(c, family)))
			})
		}
		t.Run(fmt.Sprintf("trees/%s", family), func(t *testing.T) {
			check(t, rendertest.IPTablesNode(family, rendertest.IPTablesTrees(family)))
		})
	}
}

// TestContainers_AllFilled: the test cases render elements of every container, and Naming reports which of them belong
// to frontends.
func TestContainers_AllFilled(t *testing.T) {
	ofFrontends := map[string]bool{}
	for _, c := range render.Containers {
		ofFrontends[c.Name()] = c.Chain != "KUBE-SVC-HAIRPIN" && (c.Table != "filter" || c.Chain != "KUBE-NODEPORTS")
	}
	for _, family := range service.Families {
		seen := map[string]bool{}
		for _, c := range rendertest.IPTables {
			for _, o := range rendertest.RenderIPTables(c, family) {
				if o.Kind != dataplane.Element {
					continue
				}
				seen[o.ID.Container] = true
				key, err := tree.DecodeKey(o.ID.Name)
				frontends, known := ofFrontends[o.ID.Container]
				f, isFrontend := render.Naming{}.Frontend(o.ID)
				if err != nil || !known || isFrontend != (frontends && key.Lane == tree.Tree) {
					t.Errorf("%v: %v in %s is frontend %v: %v", family, key, o.ID.Container, f, isFrontend)
				}
			}
		}
		if len(seen) < len(ofFrontends) {
			t.Errorf("%v: elements of %d containers are rendered, want all %d", family, len(seen), len(ofFrontends))
		}
	}
}

// TestRender_ChainsAreOurs: a sweep finds every rendered chain, and no built-in one.
func TestRender_ChainsAreOurs(t *testing.T) {
	for _, family := range service.Families {
		for _, o := range rendertest.IPTablesNode(family, rendertest.IPTablesTrees(family)) {
			table, chain := rendertest.IPTablesPlace(o)
			hook := strings.Contains(o.ID.Container, "/")
			if got := render.OwnsChain(render.Table(table), chain) || render.Shared(chain); got == hook {
				t.Errorf("%s %s: ours %t, want %t", table, chain, got, !hook)
			}
		}
	}
}

func BenchmarkRenderService10(b *testing.B) {
	view, facts := manyEndpoints(10)
	renderer := newTestRenderer(service.IPv4)
	b.ReportAllocs()
	for b.Loop() {
		renderer.Service(context.Background(), view, facts)
	}
}

// BenchmarkRenderClusterIP10 renders the most common kind of Service.
func BenchmarkRenderClusterIP10(b *testing.B) {
	view, facts := manyEndpoints(10)
	p := &view.Ports[service.IPv4][0]
	p.NodePort, p.ExternalIPs, p.LoadBalancerVIPs = 0, nil, nil
	renderer := newTestRenderer(service.IPv4)
	b.ReportAllocs()
	for b.Loop() {
		renderer.Service(context.Background(), view, facts)
	}
}

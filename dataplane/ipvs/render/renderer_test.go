// SPDX-License-Identifier: Apache-2.0

package render_test

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/ipvs/render"
	"github.com/sluice-proxy/sluice/dataplane/ipvs/wire"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/rendertest"
)

// TestRender_Nothing: a view without ports of the family renders to nothing, not even the health port.
func TestRender_Nothing(t *testing.T) {
	w := rendertest.WorldOf(service.IPv4)
	view := w.View(w.OpenPort())
	view.HealthCheckNodePort = 32000
	renderer := render.NewRenderer(service.IPv6, render.Options{})
	if got := renderer.Service(context.Background(), view, rendertest.WorldOf(service.IPv6).Facts()); len(got) != 0 {
		t.Errorf("IPv6 of an IPv4 Service renders %d objects, want none", len(got))
	}
}

// TestRender_APIServerAddressesNotBound: an external or load balancer IP that belongs to the API server is not bound.
// ClusterIPs are bound in any case, and all frontends have virtual servers.
func TestRender_APIServerAddressesNotBound(t *testing.T) {
	for _, family := range service.Families {
		w := rendertest.WorldOf(family)
		port := w.OpenPort()
		count := func(facts *service.NodeFacts) (bound []string, servers int) {
			for _, o := range render.NewRenderer(family, render.Options{}).Service(context.Background(), w.View(port), facts) {
				switch o.ID.Container {
				case render.ContainerAddress:
					bound = append(bound, o.ID.Name)
				case render.ContainerServer:
					servers++
				}
			}
			return bound, servers
		}
		facts := w.Facts()
		all, before := count(facts)
		facts.Servers[family] = slices.Concat([]netip.Addr{port.ClusterIP}, port.ExternalIPs, port.LoadBalancerVIPs)
		bound, after := count(facts)
		if len(all) < 2 || len(bound) != 1 || bound[0] != port.ClusterIP.String() || after != before {
			t.Errorf("%s: bound %v of %v, %d servers of %d", family, bound, all, after, before)
		}
	}
}

// TestRender_IsPure: equal views render to equal objects, regardless of earlier renderings.
func TestRender_IsPure(t *testing.T) {
	for _, c := range rendertest.IPVS {
		for _, family := range service.Families {
			first := rendertest.RenderIPVS(c, family)
			w := rendertest.WorldOf(family)
			render.NewRenderer(family, render.Options{}).Service(context.Background(), w.View(w.OpenPort()), w.Facts())
			if again := rendertest.RenderIPVS(c, family); !reflect.DeepEqual(first, again) {
				t.Errorf("%s %s: differs the second time", c.Name, family)
			}
		}
	}
}

// TestRender_ServicesAddNoRules: Services render to elements of sets, addresses and servers, and never to rules.
func TestRender_ServicesAddNoRules(t *testing.T) {
	for _, c := range rendertest.IPVS {
		if strings.HasPrefix(c.Name, "scaffold") {
			continue
		}
		for _, o := range rendertest.RenderIPVS(c, service.IPv4) {
			container, _, _ := strings.Cut(o.ID.Container, "/")
			known := []string{render.ContainerAddress, render.ContainerServer, render.ContainerSet}
			if !slices.Contains(known, container) || o.Kind != dataplane.Element {
				t.Errorf("%s: %+v", c.Name, o)
			}
		}
	}
}

// TestRender_RefsAreWhatIsUsed: each object refers to the chains and sets that it uses, and they exist.
func TestRender_RefsAreWhatIsUsed(t *testing.T) {
	for _, family := range service.Families {
		for _, c := range rendertest.IPVS {
			checkRefs(t, c.Name, scaffoldOf(family), rendertest.RenderIPVS(c, family))
		}
	}
}

func scaffoldOf(family service.Family) []dataplane.Object {
	return render.NewRenderer(family, render.Options{MasqueradeBit: 14}).Node(rendertest.WorldOf(family).Facts())
}

func checkRefs(t *testing.T, name string, scaffold, objects []dataplane.Object) {
	t.Helper()
	exists := map[dataplane.ID]bool{}
	for _, o := range slices.Concat(scaffold, objects) {
		exists[o.ID] = true
	}
	for _, o := range objects {
		for _, ref := range o.Refs() {
			if !exists[ref] {
				t.Errorf("%s: %v refers to %v, which does not exist", name, o.ID, ref)
			}
		}
		table, _, _ := strings.Cut(o.ID.Container, "/")
		words := strings.Fields(o.Body)
		for i, word := range words {
			var ref dataplane.ID
			switch {
			case word == "--match-set":
				ref = render.SetID(words[i+1])
			case word == "-j" && strings.HasPrefix(words[i+1], "KUBE-"):
				ref = dataplane.ID{Container: table, Name: words[i+1]}
			default:
				continue
			}
			if !slices.Contains(o.Refs(), ref) {
				t.Errorf("%s: %v needs %v, and does not refer to it", name, o.ID, ref)
			}
		}
	}
}

// TestRender_FirstPortKeepsFrontend: if two ports of one Service claim the same frontend, the first port keeps it with
// its own endpoints.
func TestRender_FirstPortKeepsFrontend(t *testing.T) {
	w := rendertest.WorldOf(service.IPv4)
	first, second := w.Port(), w.Port()
	second.Name, first.Cluster, second.Cluster = "other", w.Endpoints(1), w.Endpoints(2)
	renderer := render.NewRenderer(service.IPv4, render.Options{})
	objects := renderer.Service(context.Background(), w.View(first, second), w.Facts())
	fragment := dataplane.NewFragment(service.Key{}, objects)
	id := render.ServerID(service.Frontend{Addr: w.ClusterIP, Port: 80})
	i := slices.IndexFunc(fragment.Objects, func(o dataplane.Object) bool { return o.ID == id })
	if i < 0 || strings.Contains(fragment.Objects[i].Body, w.EndpointAddrs[1].String()) {
		t.Errorf("the ClusterIP does not lead to the first port: %s", listing(fragment.Objects))
	}
}

// TestRender_ModeDeadlineOmitted: the body of a server contains a deadline only if its Service has another one than the
// mode.
func TestRender_ModeDeadlineOmitted(t *testing.T) {
	w := rendertest.WorldOf(service.IPv4)
	renderer := render.NewRenderer(service.IPv4, render.Options{DrainDeadline: time.Minute})
	for drain, want := range map[service.Drain]string{
		{}: "", {Limited: true, After: time.Minute}: "", {Limited: true, After: time.Second}: "drain 1s", {Limited: true}: "drain 0s",
	} {
		for _, protocol := range []service.Protocol{service.TCP, service.UDP, service.SCTP} {
			p := w.Port()
			p.Protocol = protocol
			view := w.View(p)
			view.Drain = drain
			text := listing(renderer.Service(context.Background(), view, w.Facts()))
			_, got, _ := strings.Cut(text, "drain ")
			if said := protocol != service.SCTP && want != ""; said != strings.Contains(text, "drain ") || said && !strings.HasPrefix("drain "+got, want) {
				t.Errorf("%v of %v: want %q:\n%s", drain, protocol, want, text)
			}
		}
	}
}

// manyEndpoints is a port with every kind of frontend and n endpoints, one of them
// on this node.
func manyEndpoints(n int) (*service.View, *service.NodeFacts) {
	w := rendertest.WorldOf(service.IPv4)
	p := w.OpenPort()
	p.Cluster = nil
	for i := range n {
		addr := netip.AddrFrom4([4]byte{10, 180, byte(i >> 8), byte(i)})
		p.Cluster = append(p.Cluster, service.Endpoint{AddrPort: netip.AddrPortFrom(addr, 8080), Local: i == 0})
	}
	slices.SortFunc(p.Cluster, service.Endpoint.Compare)
	return w.View(p), w.Facts()
}

// TestRender_ObjectsPerEndpoint: the number of objects does not grow with the number of endpoints on other nodes.
func TestRender_ObjectsPerEndpoint(t *testing.T) {
	counts := map[int]int{}
	for _, n := range []int{1, 10, 1000} {
		view, facts := manyEndpoints(n)
		counts[n] = len(render.NewRenderer(service.IPv4, render.Options{}).Service(context.Background(), view, facts))
	}
	if counts[1] != counts[10] || counts[1] != counts[1000] {
		t.Errorf("objects by endpoints: %v, want equal numbers", counts)
	}
}

func BenchmarkRenderService(b *testing.B) {
	for _, n := range []int{10, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			view, facts := manyEndpoints(n)
			renderer := render.NewRenderer(service.IPv4, render.Options{})
			b.ReportAllocs()
			for b.Loop() {
				renderer.Service(context.Background(), view, facts)
			}
		})
	}
}

// listing shows objects as text, sorted, with what they hold below and each once.
func listing(objects []dataplane.Object) string {
	lines := map[string]string{}
	for _, o := range objects {
		name := fmt.Sprintf("%s | %s\n", o.ID.Container, o.ID.Name)
		lines[name] = name
		if o.Body != "" {
			lines[name] += "  " + strings.ReplaceAll(o.Body, "\n", "\n  ") + "\n"
		}
	}
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(lines)) {
		b.WriteString(lines[name])
	}
	return b.String()
}

// TestRender_ChainsAreOurs: a sweep finds every rendered chain, and no built-in one.
func TestRender_ChainsAreOurs(t *testing.T) {
	renderer := render.NewRenderer(service.IPv4, render.Options{MasqueradeBit: 14})
	chains := 0
	for _, o := range renderer.Node(rendertest.WorldOf(service.IPv4).Facts()) {
		table, builtIn, isHook := strings.Cut(o.ID.Container, "/")
		switch {
		case o.ID.Container == render.ContainerSet || o.ID == render.DeviceID:
		case isHook:
			if render.OwnsChain(table, builtIn) {
				t.Errorf("%s %s must not be removed", table, builtIn)
			}
		default:
			if chains++; !render.OwnsChain(table, o.ID.Name) {
				t.Errorf("%s %s is not ours", table, o.ID.Name)
			}
		}
	}
	if chains != 13 {
		t.Errorf("%d chains, want 13", chains)
	}
	for _, other := range []dataplane.ID{{Container: "nat", Name: "KUBE-SVC-X"}, {Container: "raw", Name: "KUBE-SERVICES"}, {Container: "filter", Name: "KUBE-FIREWALL"}} {
		if render.OwnsChain(other.Container, other.Name) {
			t.Errorf("%v is not ours", other)
		}
	}
}

// TestRender_EveryObjectIsKnown: each rendered entry is in a known set and belongs to a frontend exactly if kinds says
// so. Entries of a forgotten set would be taken for facts that Services share.
func TestRender_EveryObjectIsKnown(t *testing.T) {
	for _, family := range service.Families {
		seen := map[string]bool{}
		for _, c := range rendertest.IPVS {
			for _, o := range rendertest.RenderIPVS(c, family) {
				set, entry := render.EntrySet(o.ID)
				f, told := render.Naming{}.Frontend(o.ID)
				switch {
				case entry:
					seen[set] = true
					if !slices.ContainsFunc(render.Sets(family), func(s wire.SetSpec) bool { return s.Name == set }) {
						t.Errorf("%v: entry %q is of set %s, which is none", family, o.ID.Name, set)
					}
					begins := strings.Count(o.ID.Name, ":") > 0 && strings.Contains(o.ID.Name, ",")
					if begins && !told && set != render.SetName(family, "LOOP-BACK") {
						t.Errorf("%v: entry %q of %s names a virtual server and is for none", family, o.ID.Name, set)
					}
					if want := f.Protocol.String() + ":" + strconv.Itoa(int(f.Port)); told && !strings.HasPrefix(o.ID.Name+",", f.Addr.String()+","+want+",") {
						t.Errorf("%v: entry %q of %s is for %v", family, o.ID.Name, set, f)
					}
				case o.ID.Container == render.ContainerServer:
					if !told || render.ServerID(f) != o.ID {
						t.Errorf("%v: the frontend of %q is %v, %v", family, o.ID.Name, f, told)
					}
				case told:
					t.Errorf("%v: %q is for %v", family, o.ID, f)
				}
			}
		}
		if len(seen) < len(render.Sets(family))-1 { // none has a UDP node port with local endpoints only
			t.Errorf("%v: entries of %d sets only: this proves little", family, len(seen))
		}
	}
}

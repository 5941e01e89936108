package ipvs

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// A view without ports of the family renders to nothing, health port included.
func TestRenderNothing(t *testing.T) {
	w := worldOf(service.IPv4)
	view := w.view(w.openPort())
	view.HealthCheckNodePort = 32000
	if got := NewRenderer(service.IPv6, Options{}).Service(context.Background(), view, worldOf(service.IPv6).facts()); len(got) != 0 {
		t.Errorf("IPv6 of an IPv4 Service renders %d objects, want none", len(got))
	}
}

// TestServerAddressesAreNotBound: an external IP or a load balancer's that is the API server's stays where it is.
// ClusterIPs are bound in any case, and all frontends have their virtual servers.
func TestServerAddressesAreNotBound(t *testing.T) {
	for _, family := range service.Families {
		w := worldOf(family)
		port := w.openPort()
		count := func(facts *service.NodeFacts) (bound []string, servers int) {
			for _, o := range NewRenderer(family, Options{}).Service(context.Background(), w.view(port), facts) {
				switch o.ID.Container {
				case ContainerAddress:
					bound = append(bound, o.ID.Name)
				case ContainerServer:
					servers++
				}
			}
			return bound, servers
		}
		facts := w.facts()
		all, before := count(facts)
		facts.Servers[family] = slices.Concat([]netip.Addr{port.ClusterIP}, port.ExternalIPs, port.LoadBalancerVIPs)
		bound, after := count(facts)
		if len(all) < 2 || len(bound) != 1 || bound[0] != port.ClusterIP.String() || after != before {
			t.Errorf("%s: bound %v of %v, %d servers of %d", family, bound, all, after, before)
		}
	}
}

// Equal views render to equal objects, and what else was rendered before does not
// matter.
func TestRenderIsPure(t *testing.T) {
	for _, c := range renderCases {
		for _, family := range service.Families {
			first := c.render(family)
			w := worldOf(family)
			NewRenderer(family, Options{}).Service(context.Background(), w.view(w.openPort()), w.facts())
			if again := c.render(family); !reflect.DeepEqual(first, again) {
				t.Errorf("%s %s: differs the second time", c.name, family)
			}
		}
	}
}

// The scaffold holds nothing that follows from a Service: no Service changes a
// rule.
func TestServicesRenderNoRules(t *testing.T) {
	for _, c := range renderCases {
		if strings.HasPrefix(c.name, "scaffold") {
			continue
		}
		for _, o := range c.render(service.IPv4) {
			container, _, _ := strings.Cut(o.ID.Container, "/")
			if container != ContainerAddress && container != ContainerServer && container != ContainerSet || o.Kind != dataplane.Element {
				t.Errorf("%s: %+v", c.name, o)
			}
		}
	}
}

// Whoever jumps to a chain or asks a set says so, and whatever is referred to
// exists.
func TestRefsAreWhatIsNeeded(t *testing.T) {
	for _, family := range service.Families {
		for _, c := range renderCases {
			checkRefs(t, c.name, scaffoldOf(family), c.render(family))
		}
	}
}

func scaffoldOf(family service.Family) []dataplane.Object {
	return NewRenderer(family, Options{MasqueradeBit: 14}).Node(worldOf(family).facts())
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
				ref = SetID(words[i+1])
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

// Two ports of one Service that claim the same frontend: the first stays, with its
// own endpoints.
func TestFirstPortKeepsFrontend(t *testing.T) {
	w := worldOf(service.IPv4)
	first, second := w.port(), w.port()
	second.Name, first.Cluster, second.Cluster = "other", w.endpoints(1), w.endpoints(2)
	objects := NewRenderer(service.IPv4, Options{}).Service(context.Background(), w.view(first, second), w.facts())
	fragment := dataplane.NewFragment(service.Key{}, objects)
	id := ServerID(service.Frontend{Addr: w.clusterIP, Port: 80})
	i := slices.IndexFunc(fragment.Objects, func(o dataplane.Object) bool { return o.ID == id })
	if i < 0 || strings.Contains(fragment.Objects[i].Body, w.endpointAddrs[1].String()) {
		t.Errorf("the ClusterIP does not lead to the first port: %s", listing(fragment.Objects))
	}
}

// An endpoint that is wanted and said to drain, too, is wanted.
func TestWantedEndpointsDoNotDrain(t *testing.T) {
	w := worldOf(service.IPv4)
	p := w.port()
	p.Draining = w.endpoints(3)
	renderer := NewRenderer(service.IPv4, Options{})
	drained := renderer.Service(context.Background(), w.view(p), w.facts())
	p.Draining = nil
	if plain := renderer.Service(context.Background(), w.view(p), w.facts()); !reflect.DeepEqual(drained, plain) {
		t.Errorf("got %s, want %s", listing(drained), listing(plain))
	}
}

// A weight is all that tells a draining endpoint from one that serves, so that the
// writer changes one real server and no other.
func TestDrainingChangesOneLine(t *testing.T) {
	w := worldOf(service.IPv4)
	p := w.port()
	renderer := NewRenderer(service.IPv4, Options{})
	serving := listing(renderer.Service(context.Background(), w.view(p), w.facts()))
	p.Cluster, p.Draining = w.endpoints(3)[1:], w.endpoints(1)
	draining := listing(renderer.Service(context.Background(), w.view(p), w.facts()))
	want := strings.Replace(serving, "10.180.0.1:8080 1", "10.180.0.1:8080 0", 1)
	// It gets no new connections, so that none can be its own.
	want = strings.Replace(want, entriesPrefix+setName(service.IPv4, setLoopBack)+" | 10.180.0.1,tcp:8080,10.180.0.1\n", "", 1)
	if draining != want {
		t.Errorf("got\n%s\nwant\n%s", draining, want)
	}
}

// manyEndpoints is a port with every kind of frontend and n endpoints, one of them
// on this node.
func manyEndpoints(n int) (*service.View, *service.NodeFacts) {
	w := worldOf(service.IPv4)
	p := w.openPort()
	p.Cluster = nil
	for i := range n {
		addr := netip.AddrFrom4([4]byte{10, 180, byte(i >> 8), byte(i)})
		p.Cluster = append(p.Cluster, service.Endpoint{AddrPort: netip.AddrPortFrom(addr, 8080), Local: i == 0})
	}
	slices.SortFunc(p.Cluster, service.Endpoint.Compare)
	return w.view(p), w.facts()
}

// However many endpoints there are, the number of objects is that of frontends, and
// what the endpoints on this node add.
func TestObjectsPerEndpoint(t *testing.T) {
	counts := map[int]int{}
	for _, n := range []int{1, 10, 1000} {
		view, facts := manyEndpoints(n)
		counts[n] = len(NewRenderer(service.IPv4, Options{}).Service(context.Background(), view, facts))
	}
	if counts[1] != counts[10] || counts[1] != counts[1000] {
		t.Errorf("objects by endpoints: %v, want equal numbers", counts)
	}
}

func BenchmarkRenderService(b *testing.B) {
	for _, n := range []int{10, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			view, facts := manyEndpoints(n)
			renderer := NewRenderer(service.IPv4, Options{})
			b.ReportAllocs()
			for b.Loop() {
				renderer.Service(context.Background(), view, facts)
			}
		})
	}
}

// world has the addresses of one family that the renderer's tests use.
type world struct {
	family                   service.Family
	clusterIP, external, vip netip.Addr
	node, second, loopback   netip.Addr
	linkLocal                netip.Addr
	pods, allowed            netip.Prefix
	endpointAddrs            []netip.Addr
}

func worldOf(family service.Family) world {
	texts := []string{
		"172.30.0.41", "192.0.2.1", "198.51.100.7", "203.0.113.1", "203.0.113.2", "127.0.0.1", "169.254.1.1",
		"10.180.0.1", "10.180.0.2", "10.180.1.3",
	}
	prefixes := []string{"10.180.0.0/16", "198.18.0.0/15"}
	if family == service.IPv6 {
		texts = []string{
			"fd00:172:30::41", "2001:db8:1::1", "2001:db8:2::7", "2001:db8:3::1", "2001:db8:3::2", "::1", "fe80::1",
			"fd00:10:180::1", "fd00:10:180::2", "fd00:10:180:1::3",
		}
		prefixes = []string{"fd00:10:180::/48", "2001:db8:9::/48"}
	}
	a := make([]netip.Addr, len(texts))
	for i, text := range texts {
		a[i] = netip.MustParseAddr(text)
	}
	return world{
		family: family, clusterIP: a[0], external: a[1], vip: a[2], node: a[3], second: a[4], loopback: a[5], linkLocal: a[6],
		pods: netip.MustParsePrefix(prefixes[0]), allowed: netip.MustParsePrefix(prefixes[1]), endpointAddrs: a[7:],
	}
}

// endpoints returns n endpoints, of which the first is on this node. From the fourth on
// their addresses follow the third's.
func (w world) endpoints(n int) []service.Endpoint {
	var endpoints []service.Endpoint
	var addr netip.Addr
	for i := range n {
		if addr = addr.Next(); i < len(w.endpointAddrs) {
			addr = w.endpointAddrs[i]
		}
		endpoints = append(endpoints, service.Endpoint{AddrPort: netip.AddrPortFrom(addr, 8080), Local: i == 0})
	}
	return endpoints
}

// facts are those of a node with two addresses, whose pods are known by CIDR and
// whose node ports answer on every address.
func (w world) facts() *service.NodeFacts {
	facts := &service.NodeFacts{Name: "n1"}
	facts.NodeIPs[w.family] = w.node
	facts.Detect[w.family] = service.LocalDetector{CIDR: w.pods}
	facts.NodePorts[w.family] = service.NodePortAddresses{All: true, Host: []netip.Addr{w.node, w.second}}
	return facts
}

// port is a ClusterIP with three endpoints.
func (w world) port() service.PortView {
	return service.PortView{Name: "p80", Port: 80, ClusterIP: w.clusterIP, HasAny: true, Cluster: w.endpoints(3)}
}

// openPort answers on every kind of frontend.
func (w world) openPort() service.PortView {
	p := w.port()
	p.NodePort = 30080
	p.ExternalIPs = []netip.Addr{w.external}
	p.LoadBalancerVIPs = []netip.Addr{w.vip}
	return p
}

func (w world) view(ports ...service.PortView) *service.View {
	view := &service.View{Key: service.Key{Namespace: "ns1", Name: "svc1"}}
	view.Ports[w.family] = ports
	return view
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

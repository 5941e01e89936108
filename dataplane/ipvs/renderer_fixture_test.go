package ipvs

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// world gives the addresses of one family that the renderer's tests use.
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

// endpoints gives n endpoints, of which the first is on this node. From the fourth on
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

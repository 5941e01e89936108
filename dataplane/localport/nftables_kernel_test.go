package localport_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/dataplane/localport"
	"github.com/sluice-proxy/sluice/dataplane/nftables"
	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/conformance"
)

// cluster is a node with two domains, the rules of the nftables backend and the
// listeners, joined to a host with an endpoint.
type cluster struct {
	*world
	t                *testing.T
	rules, listeners *conformance.Pipeline
	// endpoint is on the other host.
	endpoint netip.AddrPort
}

// cable are the addresses of the node and of the other host on the link between
// them.
var cable = service.PerFamily[struct{ node, other netip.Prefix }]{
	service.IPv4: {netip.MustParsePrefix("10.9.0.1/24"), netip.MustParsePrefix("10.9.0.2/24")},
	service.IPv6: {netip.MustParsePrefix("fd09::1/64"), netip.MustParsePrefix("fd09::2/64")},
}

// newCluster makes the two hosts, on which nobody has loaded rules.
func newCluster(t *testing.T, family service.Family) *cluster {
	t.Helper()
	c := &cluster{t: t, world: newWorld(t, family, localport.Config{}), endpoint: netip.AddrPortFrom(cable[family].other.Addr(), 8080)}
	other, err := netns.New("other")
	check(t, err)
	t.Cleanup(func() { check(t, other.Close()) })
	check(t, netns.Link(c.node, other, netns.LinkSpec{
		NameA: "eth0", AddrsA: []netip.Prefix{cable[family].node}, NameB: "eth0", AddrsB: []netip.Prefix{cable[family].other},
	}))
	backend, err := netns.StartBackend(other, "endpoint", c.endpoint)
	check(t, err)
	t.Cleanup(func() { check(t, backend.Close()) })
	check(t, c.node.Sysctl(routeLocalnet, "0"))
	return c
}

const routeLocalnet = "net.ipv4.conf.all.route_localnet"

// start gives the node its domains, with node ports on some addresses.
func (c *cluster) start(on service.NodePortAddresses) {
	c.Helper()
	facts := service.NodeFacts{Name: "n1"}
	facts.NodeIPs[c.family] = c.own()
	facts.NodePorts[c.family] = on
	rules := nftables.NewWriter(c.family, nftables.WriterConfig{Inside: c.node.Do})
	c.Cleanup(func() { check(c, rules.Close()) })
	c.rules = conformance.NewPipeline(conformance.Harness{
		Renderer: nftables.NewRenderer(c.family, nftables.Options{MasqueradeBit: 14}),
	}, rules, facts)
	c.listeners = conformance.NewPipeline(conformance.Harness{
		Renderer: localport.NewRenderer(c.family),
	}, c.writer, facts)
}

// serve brings a Service with a node port over both protocols into both domains.
// Its policy is Local and its endpoints are elsewhere: this node's own clients
// are served all the same.
func (c *cluster) serve(endpoints ...netip.AddrPort) {
	c.Helper()
	spec := service.Spec{Key: c.owner, Created: time.Unix(1, 0), ExternalLocal: true}
	spec.ClusterIPs[c.family] = map[service.Family]netip.Addr{service.IPv4: addr("172.30.0.41"), service.IPv6: addr("fd00::41")}[c.family]
	slice := &service.Slice{Service: c.owner, Name: "web-1", Family: c.family}
	for _, protocol := range []service.Protocol{service.TCP, service.UDP} {
		spec.Ports = append(spec.Ports, service.Port{Name: protocol.String(), Protocol: protocol, Port: 80, NodePort: nodePort})
		slice.Ports = append(slice.Ports, service.SlicePort{Name: protocol.String(), Protocol: protocol, Port: c.endpoint.Port()})
	}
	for _, e := range endpoints {
		slice.Endpoints = append(slice.Endpoints, service.SliceEndpoint{Addr: e.Addr(), NodeName: "n2", Ready: true, Serving: true})
	}
	for _, domain := range []*conformance.Pipeline{c.rules, c.listeners} {
		domain.Serve(spec, slice)
		domain.Converge(c.t)
	}
	if drift := c.listeners.Audit(c.t); drift.Any() {
		c.Errorf("what was written is not what is read: %+v", drift)
	}
}

// TestKernelWithTheRulesOfTheNode: clients of the loopback address reach an
// endpoint on another host, over TCP and UDP, in both families, without
// route_localnet; and are refused when the endpoint has gone.
func TestKernelWithTheRulesOfTheNode(t *testing.T) {
	for _, family := range service.Families {
		for name, on := range map[string]service.NodePortAddresses{
			"all addresses":   {All: true},
			"primary address": {Addresses: []netip.Addr{addresses[family].own}},
		} {
			t.Run(family.String()+", "+name, func(t *testing.T) {
				c := newCluster(t, family)
				c.start(on)
				c.serve(c.endpoint)
				for _, network := range []string{"tcp", "udp"} {
					for range 3 {
						c.expectAnswer(network, nodePort, "endpoint")
					}
				}
				session, err := c.node.Connect(t.Context(), c.listen(nodePort))
				check(t, err)
				if from := session.Answer().Client.Addr(); from != cable[family].node.Addr() {
					t.Errorf("the endpoint sees %s, want the node's address on the way there", from)
				}
				c.serve()
				c.expectRefused("tcp", nodePort)
				c.expectRefused("udp", nodePort)
				check(t, session.Echo(t.Context(), "established connections go on"))
				check(t, session.Close())
			})
		}
	}
}

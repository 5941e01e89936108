package conformance

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"slices"
	"syscall"
	"testing"

	"github.com/sluice-proxy/sluice/internal/host/netns"
)

// Network is the fixture's world made of network namespaces, and the probe that
// opens sockets in it. Every host is a namespace; n2 does not forward, its pods
// are addresses of its own:
//
//	x ── 203.0.113.1 ──┐          ┌── 10.244.1.9 ── a
//	y ── 203.0.113.129 ┼── node ──┼── 10.244.1.13 ─ pod
//	                   │          └── 192.168.0.2 ─ n2 (b, c)
//
// Whatever the node does not translate leaves towards n2, which answers at the
// addresses of the Service.
type Network struct {
	world Fixture
	node  *netns.Namespace
	hosts map[Client]*netns.Namespace
}

// cable joins a host to the node.
type cable struct {
	// name is the interface at the node.
	name string
	host *netns.Namespace
	// atNode and atHost are addresses with the length of their prefix; the
	// first of atNode is the host's gateway.
	atNode, atHost []string
}

// NewNetwork builds the world and starts its backends; all ends with the test.
func NewNetwork(t *testing.T, world Fixture) *Network {
	t.Helper()
	n := &Network{world: world, node: newHost(t, "node"), hosts: make(map[Client]*netns.Namespace)}
	n.hosts[FromNode] = n.node
	for client, name := range map[Client]string{FromPod: "pod", FromBackend: "a", FromOutside: "x", FromStranger: "y"} {
		n.hosts[client] = newHost(t, name)
	}
	other := newHost(t, "n2")
	n.forward(t)
	for _, c := range n.cables(other) {
		n.connect(t, c)
	}
	for _, addr := range []netip.Addr{world.B, world.C} {
		check(t, other.AddAddress("lo", netip.PrefixFrom(addr, addr.BitLen())))
		check(t, n.node.AddRoute(netip.PrefixFrom(addr, addr.BitLen()), world.OtherNode))
	}
	check(t, n.node.AddRoute(everywhere(world.Node), world.OtherNode))
	n.populate(t, other)
	return n
}

// populate starts all that answers.
func (n *Network) populate(t *testing.T, other *netns.Namespace) {
	t.Helper()
	for addr, host := range map[netip.Addr]*netns.Namespace{
		n.world.A: n.hosts[FromBackend], n.world.B: other, n.world.C: other, n.world.Node: n.node,
	} {
		serve(t, host, netip.AddrPortFrom(addr, endpointPort))
	}
	for _, at := range n.world.beyond() {
		check(t, other.AddAddress("lo", netip.PrefixFrom(at.Addr(), at.Addr().BitLen())))
		serve(t, other, at)
	}
	for _, at := range n.world.hostServices() {
		serve(t, n.node, at)
	}
}

// Node is the namespace of the node under test.
func (n *Network) Node() *netns.Namespace { return n.node }

func newHost(t *testing.T, name string) *netns.Namespace {
	t.Helper()
	host, err := netns.New(name)
	check(t, err)
	t.Cleanup(func() { check(t, host.Close()) })
	return host
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// forward makes the node a router as a Kubernetes node is one.
func (n *Network) forward(t *testing.T) {
	t.Helper()
	for key, value := range map[string]string{
		"net.ipv4.ip_forward":              "1",
		"net.ipv6.conf.all.forwarding":     "1",
		"net.ipv4.conf.all.rp_filter":      "0",
		"net.ipv4.conf.default.rp_filter":  "0",
		"net.ipv4.conf.all.route_localnet": "1",
	} {
		check(t, n.node.Sysctl(key, value))
	}
}

// cables are the same for both families; each host has its addresses of both.
func (n *Network) cables(other *netns.Namespace) []cable {
	return []cable{
		{"eth-n2", other, []string{"192.168.0.2/24", "2001:db8::2/64"}, []string{"192.168.0.3/24", "2001:db8::3/64"}},
		{"eth-x", n.hosts[FromOutside], []string{"203.0.113.1/25", "2001:db8:ffff::1/112", "192.168.1.2/24", "2001:db8:1::2/64"},
			[]string{"203.0.113.10/25", "2001:db8:ffff::10/112"}},
		{"eth-y", n.hosts[FromStranger], []string{"203.0.113.129/25", "2001:db8:fffe::1/112"}, []string{"203.0.113.130/25", "2001:db8:fffe::10/112"}},
		{"veth-a", n.hosts[FromBackend], []string{"10.244.1.9/30", "fd00:10:244:1::1/120"}, []string{"10.244.1.10/30", "fd00:10:244:1::10/120"}},
		{podInterface, n.hosts[FromPod], []string{"10.244.1.13/30", "fd00:10:244:1::101/120"}, []string{"10.244.1.14/30", "fd00:10:244:1::114/120"}},
	}
}

// connect lays a cable and makes the node the host's gateway in both families.
func (n *Network) connect(t *testing.T, c cable) {
	t.Helper()
	parse := func(texts []string) []netip.Prefix {
		var prefixes []netip.Prefix
		for _, text := range texts {
			prefixes = append(prefixes, netip.MustParsePrefix(text))
		}
		return prefixes
	}
	atNode := parse(c.atNode)
	check(t, netns.Link(n.node, c.host, netns.LinkSpec{
		NameA: c.name, NameB: "eth0", AddrsA: atNode, AddrsB: parse(c.atHost),
	}))
	for _, gateway := range atNode[:2] {
		check(t, c.host.AddRoute(everywhere(gateway.Addr()), gateway.Addr()))
	}
}

// everywhere is the default route of an address's family.
func everywhere(addr netip.Addr) netip.Prefix {
	if addr.Is4() {
		return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	}
	return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
}

func serve(t *testing.T, host *netns.Namespace, at netip.AddrPort) {
	t.Helper()
	backend, err := netns.StartBackend(host, at.String(), at)
	check(t, err)
	t.Cleanup(func() { check(t, backend.Close()) })
}

// Ask implements [Probe] with a socket of its own.
func (n *Network) Ask(t *testing.T, q Question) Answer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), q.Patience)
	defer cancel()
	got, err := n.hosts[q.From].Ask(ctx, q.Protocol.String(), q.To)
	switch {
	case err == nil && got.Backend == q.To.String() && !slices.Contains(n.world.backends(), q.To):
		return Answer{Fate: Through}
	case err == nil:
		return Answer{Fate: Answered, Endpoint: netip.MustParseAddrPort(got.Backend), Source: n.source(q.From, got.Client.Addr())}
	case errors.Is(err, syscall.ECONNREFUSED):
		return Answer{Fate: Refused}
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return Answer{Fate: Silent}
	default:
		t.Errorf("%v: %v", q, err)
		return Answer{Fate: Broken}
	}
}

// source tells whose address a backend saw.
func (n *Network) source(from Client, seen netip.Addr) Source {
	if from != FromNode && seen == n.world.address(from) {
		return OwnSource
	}
	for _, c := range n.cables(nil) {
		for _, text := range c.atNode {
			if netip.MustParsePrefix(text).Addr() == seen {
				return NodeSource
			}
		}
	}
	return OtherSource
}

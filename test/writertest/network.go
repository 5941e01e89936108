// SPDX-License-Identifier: Apache-2.0

package writertest

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"slices"
	"syscall"
	"testing"

	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/test/netnstest"
)

// Network is the fixture's world made of network namespaces, and the probe that opens sockets in
// it. Every host is a namespace; n2 does not forward, its pods are separate addresses:
//
//	x ── 203.0.113.1 ──┐          ┌── 10.244.1.9 ── a
//	y ── 203.0.113.129 ┼── node ──┼── 10.244.1.13 ─ pod
//	                   │          └── 192.168.0.2 ─ n2 (b, c)
//
// Whatever the node does not translate leaves towards n2, which answers at the addresses of the
// Service.
type Network struct {
	fixture Fixture
	hosts   *netnstest.Network
	// atNode are the addresses of the node.
	atNode []netip.Addr
}

const nodeHost = "node"

// hostNames are the namespaces of clients.
var hostNames = [...]string{FromPod: "pod", FromBackend: "a", FromNode: nodeHost, FromOutside: "x", FromStranger: "y"}

// NewNetwork builds the world and starts its servers; all end with the test.
func NewNetwork(t *testing.T, f Fixture) *Network {
	t.Helper()
	plan := f.plan()
	n := &Network{fixture: f, hosts: netnstest.Build(t, plan)}
	for _, c := range plan.Cables {
		for _, p := range c.AtRouter {
			n.atNode = append(n.atNode, p.Addr())
		}
	}
	check(t, n.Node().Sysctl("net.ipv4.conf.all.route_localnet", "1"))
	return n
}

// plan describes the network. The cables are the same for both families; each host has addresses of
// both.
func (f Fixture) plan() netnstest.Plan {
	prefixes := netns.Prefixes
	plan := netnstest.Plan{
		Cables: []netns.Cable{
			{Router: nodeHost, Leaf: otherNodeName, Port: "eth-n2",
				AtRouter: prefixes("192.168.0.2/24", "2001:db8::2/64"), AtLeaf: prefixes("192.168.0.3/24", "2001:db8::3/64")},
			{Router: nodeHost, Leaf: "x", Port: "eth-x",
				AtRouter: prefixes("203.0.113.1/25", "2001:db8:ffff::1/112", "192.168.1.2/24", "2001:db8:1::2/64"),
				AtLeaf:   prefixes("203.0.113.10/25", "2001:db8:ffff::10/112")},
			{Router: nodeHost, Leaf: "y", Port: "eth-y",
				AtRouter: prefixes("203.0.113.129/25", "2001:db8:fffe::1/112"), AtLeaf: prefixes("203.0.113.130/25", "2001:db8:fffe::10/112")},
			{Router: nodeHost, Leaf: "a", Port: "veth-a",
				AtRouter: prefixes("10.244.1.9/30", "fd00:10:244:1::1/120"), AtLeaf: prefixes("10.244.1.10/30", "fd00:10:244:1::10/120")},
			{Router: nodeHost, Leaf: "pod", Port: podInterface,
				AtRouter: prefixes("10.244.1.13/30", "fd00:10:244:1::101/120"), AtLeaf: prefixes("10.244.1.14/30", "fd00:10:244:1::114/120")},
		},
		Loopback: map[string][]netip.Addr{otherNodeName: {f.B, f.C}},
		Routes: []netnstest.Route{
			{Host: nodeHost, To: netns.Single(f.B), Via: f.OtherNode},
			{Host: nodeHost, To: netns.Single(f.C), Via: f.OtherNode},
			{Host: nodeHost, To: netns.Everything(f.Node), Via: f.OtherNode},
		},
	}
	serve := func(host string, at netip.AddrPort) {
		plan.Servers = append(plan.Servers, netnstest.Server{Name: at.String(), Host: host, At: at})
	}
	for addr, host := range map[netip.Addr]string{f.A: "a", f.B: otherNodeName, f.C: otherNodeName, f.Node: nodeHost} {
		serve(host, netip.AddrPortFrom(addr, endpointPort))
	}
	for _, at := range f.beyond() {
		plan.Loopback[otherNodeName] = append(plan.Loopback[otherNodeName], at.Addr())
		serve(otherNodeName, at)
	}
	for _, at := range f.hostServices() {
		serve(nodeHost, at)
	}
	return plan
}

// Node is the namespace of the node under test.
func (n *Network) Node() *netns.Namespace { return n.hosts.Hosts[nodeHost] }

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Ask makes one connection with a separate socket. It may be called from several goroutines. It
// reports any other fate, such as a broken network, as an error of the test.
func (n *Network) Ask(t *testing.T, q Question) Answer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), q.Patience)
	defer cancel()
	got, err := netnstest.Ask(ctx, n.hosts.Hosts[hostNames[q.From]], q.Protocol.String(), q.To)
	switch {
	case err == nil && got.Backend == q.To.String() && !slices.Contains(n.fixture.backends(), q.To):
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

// source says whose address a server saw.
func (n *Network) source(from Client, seen netip.Addr) Source {
	switch {
	case from != FromNode && seen == n.fixture.address(from):
		return OwnSource
	case slices.Contains(n.atNode, seen):
		return NodeSource
	default:
		return OtherSource
	}
}

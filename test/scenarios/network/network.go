// SPDX-License-Identifier: Apache-2.0

// Package network is the world of the scenarios made of network namespaces: the picture of package
// fixture, the real proxy as a process on the node under test, real sockets, and an API server that
// takes any object. Package play drives it.
package network

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/netnstest"
	"github.com/sluice-proxy/sluice/test/scenarios/fixture"
)

// Network is the picture of package fixture. The pods b and c are addresses of n2, which answers
// there only at the ports of endpoints.
type Network struct {
	*netnstest.Network
	// atNode are the addresses that the node has from the start.
	atNode map[netip.Addr]bool
	sctp   sctp
}

// beyond is the host to which the node sends everything for which it has no other route.
const beyond = fixture.Beyond

// New builds the network. podPort is the name of the node's interface to p1; "" is veth-p1.
func New(podPort string) (*Network, error) {
	if podPort == "" {
		podPort = "veth-p1"
	}
	plan := netnstest.Plan{
		Cables:   cables(podPort),
		Loopback: map[string][]netip.Addr{},
		Servers:  servers(),
	}
	for _, family := range service.Families {
		plan.Loopback["n2"] = append(plan.Loopback["n2"], fixture.MustAddress(family, "b"), fixture.MustAddress(family, "c"))
		plan.Loopback[beyond] = append(plan.Loopback[beyond], fixture.BeyondAddresses(family)...)
		gateway := netip.MustParseAddr(map[service.Family]string{service.IPv4: "192.168.1.1", service.IPv6: "2001:db8:1::1"}[family])
		plan.Routes = append(plan.Routes,
			netnstest.Route{Host: fixture.NodeName, To: fixture.MustPrefix(family, "pods2"), Via: fixture.MustAddress(family, "n2")},
			netnstest.Route{Host: fixture.NodeName, To: netns.Everything(gateway), Via: gateway},
		)
	}
	built, err := netnstest.NewNetwork(plan)
	if err != nil {
		return nil, err
	}
	n := &Network{Network: built, atNode: map[netip.Addr]bool{}}
	for _, c := range plan.Cables {
		if c.Router == fixture.NodeName {
			for _, p := range c.AtRouter {
				n.atNode[p.Addr()] = true
			}
		}
	}
	return n, nil
}

// cables are the same in every world, except that p1's may have another name. Pods have IPv6
// addresses that stand alone, so that each can have any.
func cables(podPort string) []netns.Cable {
	cable := func(router, leaf, port string, router4, router6, leaf4, leaf6 string) netns.Cable {
		return netns.Cable{
			Router: router, Leaf: leaf, Port: port,
			AtRouter: netns.Prefixes(router4, router6), AtLeaf: netns.Prefixes(leaf4, leaf6),
		}
	}
	return []netns.Cable{
		cable(fixture.NodeName, "n2", "eth0", "192.168.0.2/24", "2001:db8::2/64", "192.168.0.3/24", "2001:db8::3/64"),
		cable(fixture.NodeName, beyond, "eth1", "192.168.1.2/24", "2001:db8:1::2/64", "192.168.1.1/24", "2001:db8:1::1/64"),
		cable(fixture.NodeName, "x", "eth-x", "203.0.113.1/25", "2001:db8:ffff::1/112", "203.0.113.10/25", "2001:db8:ffff::10/112"),
		cable(fixture.NodeName, "y", "eth-y", "203.0.113.129/25", "2001:db8:fffe::1/112", "203.0.113.130/25", "2001:db8:fffe::10/112"),
		cable(fixture.NodeName, "a", "veth-a", "10.244.1.9/30", "fd00:10:244:1::f/124", "10.244.1.10/30", "fd00:10:244:1::10/128"),
		cable(fixture.NodeName, "p1", podPort, "10.244.1.13/30", "fd00:10:244:1::e/128", "10.244.1.14/30", "fd00:10:244:1::14/128"),
		cable(fixture.NodeName, "a2", "veth-a2", "10.244.1.17/30", "fd00:10:244:1::d/128", "10.244.1.18/30", "fd00:10:244:1::18/128"),
		cable("n2", "p2", "veth-p2", "10.244.2.13/30", "fd00:10:244:2::e/128", "10.244.2.14/30", "fd00:10:244:2::14/128"),
	}
}

// servers answer at every endpoint and beyond.
func servers() []netnstest.Server {
	var all []netnstest.Server
	for _, family := range service.Families {
		for _, name := range fixture.Endpoints {
			for _, port := range fixture.EndpointPorts {
				at := netip.AddrPortFrom(fixture.MustAddress(family, name), port)
				all = append(all, netnstest.Server{Name: fixture.EndpointName(name, port), Host: hostOf(name), At: at})
			}
		}
		for _, a := range fixture.BeyondAddresses(family) {
			for _, port := range fixture.BeyondPorts {
				all = append(all, netnstest.Server{Name: fixture.Beyond, Host: beyond, At: netip.AddrPortFrom(a, port)})
			}
		}
	}
	return all
}

// hostOf returns the host that has the address of a client or an endpoint.
func hostOf(name string) string {
	switch name {
	case "b", "c":
		return "n2"
	case "node":
		return fixture.NodeName
	default:
		return name
	}
}

// Serve starts a server at the address of an endpoint.
func (n *Network) Serve(name, endpoint string, at netip.AddrPort) error {
	return n.Network.Serve(name, hostOf(endpoint), at)
}

// Host returns the namespace that a client is in.
func (n *Network) Host(client string) (*netns.Namespace, error) {
	host := n.Hosts[hostOf(client)]
	if host == nil || client == "b" || client == "c" { // whose addresses are n2's, and send from others
		return nil, fmt.Errorf("there is no client %q", client)
	}
	return host, nil
}

// Node returns the namespace of the node under test.
func (n *Network) Node() *netns.Namespace { return n.Hosts[fixture.NodeName] }

// Close ends every server and lets go of the namespaces.
func (n *Network) Close() error { return errors.Join(n.sctp.close(), n.Network.Close()) }

// moreAddresses are the first further addresses of a client. Those of p1 are pods of n1, those of x
// are in the allowed range.
var moreAddresses = map[string][2]string{
	"p1": {"10.244.1.64", "fd00:10:244:1::1:0"},
	"x":  {"203.0.113.64", "2001:db8:ffff::1000"},
}

// moreMax is how many further addresses there may be.
const moreMax = 60

// Sources adds further addresses of a family to a client, unless it has them, and returns them.
func (n *Network) Sources(client string, family service.Family, count int) ([]netip.Addr, error) {
	first, ok := moreAddresses[client]
	if !ok || count > moreMax {
		return nil, fmt.Errorf("%d addresses of %s: want p1 or x, and at most %d", count, client, moreMax)
	}
	host, err := n.Host(client)
	if err != nil {
		return nil, err
	}
	var all []netip.Addr
	for a := netip.MustParseAddr(first[family]); len(all) < count; a = a.Next() {
		if err := host.AddAddress("lo", netns.Single(a)); err != nil && !errors.Is(err, unix.EEXIST) {
			return nil, err
		}
		err := n.Node().AddRoute(netns.Single(a), fixture.MustAddress(family, client))
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return nil, err
		}
		all = append(all, a)
	}
	return all, nil
}

// Package network is the world of the scenarios made of network namespaces, with
// the real proxy as a process on the node under test, real sockets, and an API
// server that takes any object.
package network

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"

	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/scenarios/fixture"
)

// Network is the picture of package fixture. The pods b and c are addresses of n2,
// and nobody answers there but at the ports of endpoints.
type Network struct {
	// hosts are the namespaces by the name of the client in them.
	hosts map[string]*netns.Namespace
	// atNode are all addresses of the node at the time it was made.
	atNode   map[netip.Addr]bool
	backends []*netns.Backend
	sctp     sctp
}

// beyond is the host that the node sends everything to for which it has no other
// route.
const beyond = fixture.Beyond

// cable joins a host to the node, or to the node n2.
type cable struct {
	// router and leaf are names of hosts; port is the router's interface.
	router, leaf, port string
	// atRouter and atLeaf have the addresses with the length of their prefix, IPv4
	// before IPv6; the first two of atRouter are the leaf's gateways.
	atRouter, atLeaf []string
}

// cables are the same in every world, but that p1's may have another name.
func cables(podPort string) []cable {
	return []cable{
		{fixture.NodeName, "n2", "eth0", []string{"192.168.0.2/24", "2001:db8::2/64"}, []string{"192.168.0.3/24", "2001:db8::3/64"}},
		{fixture.NodeName, beyond, "eth1", []string{"192.168.1.2/24", "2001:db8:1::2/64"}, []string{"192.168.1.1/24", "2001:db8:1::1/64"}},
		{fixture.NodeName, "x", "eth-x", []string{"203.0.113.1/25", "2001:db8:ffff::1/112"}, []string{"203.0.113.10/25", "2001:db8:ffff::10/112"}},
		{fixture.NodeName, "y", "eth-y", []string{"203.0.113.129/25", "2001:db8:fffe::1/112"}, []string{"203.0.113.130/25", "2001:db8:fffe::10/112"}},
		{fixture.NodeName, "a", "veth-a", []string{"10.244.1.9/30", "fd00:10:244:1::f/124"}, []string{"10.244.1.10/30", "fd00:10:244:1::10/128"}},
		{fixture.NodeName, "p1", podPort, []string{"10.244.1.13/30", "fd00:10:244:1::e/128"}, []string{"10.244.1.14/30", "fd00:10:244:1::14/128"}},
		{fixture.NodeName, "a2", "veth-a2", []string{"10.244.1.17/30", "fd00:10:244:1::d/128"}, []string{"10.244.1.18/30", "fd00:10:244:1::18/128"}},
		{"n2", "p2", "veth-p2", []string{"10.244.2.13/30", "fd00:10:244:2::e/128"}, []string{"10.244.2.14/30", "fd00:10:244:2::14/128"}},
	}
}

// New builds a world. podPort is the name of the node's interface to p1; "" is
// veth-p1.
func New(podPort string) (*Network, error) {
	if podPort == "" {
		podPort = "veth-p1"
	}
	n := &Network{hosts: make(map[string]*netns.Namespace), atNode: make(map[netip.Addr]bool)}
	if err := n.build(podPort); err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

func (n *Network) build(podPort string) error {
	for _, name := range []string{fixture.NodeName, "n2", beyond, "x", "y", "a", "a2", "p1", "p2"} {
		host, err := netns.New(name)
		if err != nil {
			return err
		}
		n.hosts[name] = host
	}
	n.hosts["node"] = n.hosts[fixture.NodeName]
	if err := n.sysctls(); err != nil {
		return err
	}
	all := cables(podPort)
	for _, c := range all {
		if err := n.connect(c); err != nil {
			return err
		}
	}
	for _, c := range all {
		if err := netns.AwaitLink(n.hosts[c.router], n.hosts[c.leaf], c.spec()); err != nil {
			return err
		}
	}
	if err := n.routes(); err != nil {
		return err
	}
	return n.populate()
}

// sysctls make routers of the nodes, as Kubernetes nodes are, and let them refuse
// every packet: the kernel otherwise limits that to one per second for a host.
func (n *Network) sysctls() error {
	everybody := map[string]string{"net.ipv6.conf.default.accept_redirects": "0", "net.ipv6.conf.all.accept_redirects": "0"}
	routers := map[string]string{
		"net.ipv4.ip_forward":             "1",
		"net.ipv6.conf.all.forwarding":    "1",
		"net.ipv4.conf.all.rp_filter":     "0",
		"net.ipv4.conf.default.rp_filter": "0",
		"net.ipv4.icmp_ratelimit":         "0",
		"net.ipv6.icmp.ratelimit":         "0",
		"net.ipv4.icmp_msgs_per_sec":      "1000000", // of both families, in spite of the name
		"net.ipv4.icmp_msgs_burst":        "1000000",
		// A router sends hosts away from itself that could have gone a shorter
		// way, which they cannot here.
		"net.ipv4.conf.all.send_redirects":     "0",
		"net.ipv4.conf.default.send_redirects": "0",
	}
	maps.Copy(routers, everybody)
	var errs []error
	for name, host := range n.hosts {
		switch name {
		case "node": // another name of n1
		case fixture.NodeName, "n2":
			errs = append(errs, host.Sysctls(routers))
		default:
			errs = append(errs, host.Sysctls(everybody))
		}
	}
	return errors.Join(errs...)
}

// spec is the cable for package netns.
func (c cable) spec() netns.LinkSpec {
	return netns.LinkSpec{NameA: c.port, NameB: "eth0", AddrsA: parse(c.atRouter), AddrsB: parse(c.atLeaf)}
}

// connect lays a cable, without waiting for it, and makes the router the leaf's gateway in both families.
func (n *Network) connect(c cable) error {
	spec := c.spec()
	atRouter, atLeaf := spec.AddrsA, spec.AddrsB
	router, leaf := n.hosts[c.router], n.hosts[c.leaf]
	if err := netns.Lay(router, leaf, spec); err != nil {
		return err
	}
	for i, gateway := range atRouter[:2] {
		if c.router == fixture.NodeName {
			n.atNode[gateway.Addr()] = true
		}
		if atLeaf[i].Addr().Is6() {
			// A pod's IPv6 address stands alone, so that each can have any.
			if err := errors.Join(
				router.AddLinkRoute(single(atLeaf[i].Addr()), c.port), leaf.AddLinkRoute(single(gateway.Addr()), "eth0"),
			); err != nil {
				return err
			}
		}
		if err := leaf.AddRoute(everything(gateway.Addr()), gateway.Addr()); err != nil {
			return err
		}
	}
	return nil
}

// routes send the node's packets for other pods to n2, and everything else beyond.
func (n *Network) routes() error {
	node := n.hosts[fixture.NodeName]
	var errs []error
	for _, family := range service.Families {
		gateway := map[service.Family]string{service.IPv4: "192.168.1.1", service.IPv6: "2001:db8:1::1"}[family]
		errs = append(errs,
			node.AddRoute(fixture.MustPrefix(family, "pods2"), fixture.MustAddress(family, "n2")),
			node.AddRoute(everything(fixture.MustAddress(family, "node")), netip.MustParseAddr(gateway)),
		)
	}
	return errors.Join(errs...)
}

// populate starts all who answer.
func (n *Network) populate() error {
	for _, family := range service.Families {
		for _, pod := range []string{"b", "c"} {
			if err := n.hosts["n2"].AddAddress("lo", single(fixture.MustAddress(family, pod))); err != nil {
				return err
			}
		}
		for _, name := range fixture.Endpoints {
			for _, port := range fixture.EndpointPorts {
				at := netip.AddrPortFrom(fixture.MustAddress(family, name), port)
				if err := n.Serve(fixture.EndpointName(name, port), hostOf(name), at); err != nil {
					return err
				}
			}
		}
		for _, a := range fixture.BeyondAddresses(family) {
			if err := n.hosts[beyond].AddAddress("lo", single(a)); err != nil {
				return err
			}
			for _, port := range fixture.BeyondPorts {
				if err := n.Serve(fixture.Beyond, beyond, netip.AddrPortFrom(a, port)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// hostOf gives the host that has the address of an endpoint.
func hostOf(endpoint string) string {
	if endpoint == "b" || endpoint == "c" {
		return "n2"
	}
	return endpoint
}

// Serve lets somebody answer under a name at an address that the host has.
func (n *Network) Serve(name, host string, at netip.AddrPort) error {
	b, err := netns.StartBackend(n.hosts[host], name, at)
	if err != nil {
		return err
	}
	n.backends = append(n.backends, b)
	return nil
}

// Host gives the namespace that a client is in.
func (n *Network) Host(client string) (*netns.Namespace, error) {
	host, ok := n.hosts[client]
	if !ok {
		return nil, fmt.Errorf("there is no client %q", client)
	}
	return host, nil
}

// Node is the namespace of the node under test.
func (n *Network) Node() *netns.Namespace { return n.hosts[fixture.NodeName] }

// Close ends everybody and lets go of the namespaces.
func (n *Network) Close() error {
	var errs []error
	for _, b := range n.backends {
		errs = append(errs, b.Close())
	}
	errs = append(errs, n.sctp.close())
	delete(n.hosts, "node")
	for _, host := range n.hosts {
		errs = append(errs, host.Close())
	}
	return errors.Join(errs...)
}

func parse(texts []string) []netip.Prefix {
	var all []netip.Prefix
	for _, text := range texts {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}

func single(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// everything is the default route of an address's family.
func everything(a netip.Addr) netip.Prefix {
	if a.Is4() {
		return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	}
	return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
}

// SPDX-License-Identifier: Apache-2.0

package netns

import (
	"errors"
	"maps"
	"net/netip"
	"os"
	"slices"
)

// Plan describes a network: hosts joined by cables.
type Plan struct {
	// Here names the host that is this process's own namespace, for a program in a sandbox. The
	// other hosts, or all of them, get separate namespaces.
	Here string
	// Cables join the hosts. A host that is a router of some cable forwards packets.
	Cables []Cable
	// Loopback lists further addresses of hosts, by the host's name.
	Loopback map[string][]netip.Addr
}

// Cable joins a leaf to a router by a veth pair.
type Cable struct {
	Router, Leaf string
	// Port is the router's interface; the leaf's is eth0.
	Port string
	// AtRouter and AtLeaf are the addresses at the two ends. The first address of a family at the router is the leaf's
	// default gateway. If the prefix of one end does not contain the other end's address, that end gets a route to the
	// address, so that a prefix may consist of one address.
	AtRouter, AtLeaf []netip.Prefix
}

// Network is a plan that was carried out.
type Network struct {
	// Hosts are the namespaces by name.
	Hosts map[string]*Namespace
}

// Build carries out a plan. When it returns, packets flow on every cable.
func Build(plan Plan) (*Network, error) {
	n := &Network{Hosts: map[string]*Namespace{}}
	if err := n.build(plan); err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

func (n *Network) build(plan Plan) error {
	if err := n.addHosts(plan); err != nil {
		return err
	}
	for _, c := range plan.Cables {
		if err := n.connect(c); err != nil {
			return err
		}
	}
	for _, c := range plan.Cables {
		if err := errors.Join(n.Hosts[c.Router].awaitReady(c.Port), n.Hosts[c.Leaf].awaitReady(leafPort)); err != nil {
			return err
		}
	}
	for host, addrs := range plan.Loopback {
		for _, addr := range addrs {
			if err := n.Hosts[host].AddAddress("lo", Single(addr)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (n *Network) addHosts(plan Plan) error {
	routers := map[string]bool{}
	for _, c := range plan.Cables {
		routers[c.Router] = true
	}
	for _, c := range plan.Cables {
		for _, name := range []string{c.Router, c.Leaf} {
			if n.Hosts[name] != nil {
				continue
			}
			open := New
			if name == plan.Here {
				open = Current
			}
			host, err := open(name)
			if err != nil {
				return err
			}
			n.Hosts[name] = host
			if err := host.prepare(routers[name]); err != nil {
				return err
			}
		}
	}
	return nil
}

// prepare sets the kernel parameters that every host of a network needs.
func (n *Namespace) prepare(router bool) error {
	// A router sends a packet to an address without a rule back through the same interface. It would then send its sender
	// a redirect to a shorter path, which does not exist here.
	values := map[string]string{}
	for _, conf := range []string{"all", "default"} {
		values["net.ipv4.conf."+conf+".accept_redirects"] = "0"
		values["net.ipv4.conf."+conf+".send_redirects"] = "0"
		values["net.ipv6.conf."+conf+".accept_redirects"] = "0"
	}
	if !router {
		return n.Sysctls(values)
	}
	maps.Copy(values, map[string]string{
		"net.ipv4.ip_forward":             "1",
		"net.ipv6.conf.all.forwarding":    "1",
		"net.ipv4.conf.all.rp_filter":     "0",
		"net.ipv4.conf.default.rp_filter": "0",
		// Answer every packet that is refused. By default, the kernel sends one ICMP error per second to each host and a
		// thousand in all, and drops the other packets silently.
		"net.ipv4.icmp_ratelimit": "0",
		"net.ipv6.icmp.ratelimit": "0",
	})
	if err := n.Sysctls(values); err != nil {
		return err
	}
	// Despite their names, these limits are for both families. Before Linux 6.11, they are limits of the whole machine.
	for _, key := range []string{"net.ipv4.icmp_msgs_per_sec", "net.ipv4.icmp_msgs_burst"} {
		if err := n.Sysctl(key, "1000000"); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

const leafPort = "eth0"

// connect lays a cable without waiting for it, and makes the router the leaf's gateway.
func (n *Network) connect(c Cable) error {
	router, leaf := n.Hosts[c.Router], n.Hosts[c.Leaf]
	if err := lay(router, leaf, LinkSpec{NameA: c.Port, NameB: leafPort, AddrsA: c.AtRouter, AddrsB: c.AtLeaf}); err != nil {
		return err
	}
	for _, gateway := range firstOfEach(c.AtRouter) {
		for _, addr := range c.AtLeaf {
			if addr.Addr().Is4() != gateway.Addr().Is4() {
				continue
			}
			if !gateway.Contains(addr.Addr()) {
				if err := router.AddLinkRoute(Single(addr.Addr()), c.Port); err != nil {
					return err
				}
			}
			if !addr.Contains(gateway.Addr()) {
				if err := leaf.AddLinkRoute(Single(gateway.Addr()), leafPort); err != nil {
					return err
				}
			}
		}
		if err := leaf.AddRoute(Everything(gateway.Addr()), gateway.Addr()); err != nil {
			return err
		}
	}
	return nil
}

// firstOfEach returns the first prefix of each family.
func firstOfEach(prefixes []netip.Prefix) []netip.Prefix {
	var first []netip.Prefix
	for _, p := range prefixes {
		if !slices.ContainsFunc(first, func(f netip.Prefix) bool { return f.Addr().Is4() == p.Addr().Is4() }) {
			first = append(first, p)
		}
	}
	return first
}

// Close closes the namespaces.
func (n *Network) Close() error {
	var errs []error
	for _, host := range n.Hosts {
		errs = append(errs, host.Close())
	}
	return errors.Join(errs...)
}

// Prefixes parses addresses or networks, each with the length of its prefix.
func Prefixes(texts ...string) []netip.Prefix {
	all := make([]netip.Prefix, len(texts))
	for i, text := range texts {
		all[i] = netip.MustParsePrefix(text)
	}
	return all
}

// Single returns the prefix that contains one address only.
func Single(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// Everything returns the default route of an address's family.
func Everything(a netip.Addr) netip.Prefix {
	if a.Is4() {
		return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	}
	return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
}

// SPDX-License-Identifier: Apache-2.0

package netns

import (
	"errors"
	"fmt"
)

// Attach creates the leaf of a cable, a new host, and joins it to a router of the network. It must not be called at the
// same time as other methods that change the network.
func (n *Network) Attach(c Cable) error {
	router := n.Hosts[c.Router]
	if router == nil || n.Hosts[c.Leaf] != nil {
		return fmt.Errorf("netns: attach %s to %s: there is no such router, or the host exists", c.Leaf, c.Router)
	}
	leaf, err := New(c.Leaf)
	if err != nil {
		return err
	}
	n.Hosts[c.Leaf] = leaf
	if err = leaf.prepare(false); err == nil {
		err = n.connect(c)
	}
	if err == nil {
		err = errors.Join(router.awaitReady(c.Port), leaf.awaitReady(leafPort))
	}
	if err != nil {
		return errors.Join(err, n.Detach(c.Leaf))
	}
	return nil
}

// Detach removes a leaf with its cable. Servers on the leaf must have ended.
func (n *Network) Detach(leaf string) error {
	host := n.Hosts[leaf]
	delete(n.Hosts, leaf)
	var err error
	if _, laid := host.link(leafPort); laid == nil {
		err = host.DeleteLink(leafPort)
	}
	return errors.Join(err, host.Close())
}

// AddDefaultRoute sends everything without another route straight out of an interface, as to
// neighbors on it, in each family that the host has.
func (n *Namespace) AddDefaultRoute(ifname string) error {
	for _, any := range Prefixes("0.0.0.0/0", "::/0") {
		if any.Addr().Is6() && !n.ipv6 {
			continue
		}
		if err := n.AddLinkRoute(any, ifname); err != nil {
			return err
		}
	}
	return nil
}

// HasIPv6 reports whether the kernel has IPv6.
func (n *Namespace) HasIPv6() bool { return n.ipv6 }

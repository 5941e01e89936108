// SPDX-License-Identifier: Apache-2.0

// Package harness lets a test run Sluice as it runs on a node: as a separate process, in a
// network of its own, against a real API server, with real connections through the Service
// addresses.
//
//	api                     x (outside the cluster)
//	 │                      │
//	 └──────── n1 ──────────┘      n1 runs sluice; its kernel is the one under test
//	┌───────┬──┴───────┐
//	p1      a          n2          p1 a pod that is a client, a a pod behind Services
//	                 ┌─┴─┐
//	                 b   c         pods behind Services on another node
//
// Each start of a proxy chooses its mode. Questions to the kernel do not depend on it: the answers
// cover iptables and nftables alike.
//
// Every letter is a network namespace; every line is a cable that carries IPv4 and IPv6. A
// [Cluster] is all of that for one test, made in a few seconds and gone with the test. Nothing on
// the machine itself changes.
//
// Every wait has a limit, and a failed test prints the last lines of each log. The whole logs are
// in the directory of testing.T.ArtifactDir; go test -artifacts keeps them.
package harness

import (
	"net/netip"

	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/test/netnstest"
)

const (
	// PodCIDRs holds every pod address, as flags of a proxy want it.
	PodCIDRs = "10.244.0.0/16,fd00:244::/32"
	// NodeName is the node that Sluice serves.
	NodeName = "n1"
	// OtherNodeName is the node of the pods B and C.
	OtherNodeName = "n2"
)

// Network is the picture in the package comment.
type Network struct {
	*netnstest.Network
	API *Host // the API server
	N1  *Host // the node under test; its main addresses are those on the cable to X
	N2  *Host // another node
	X   *Host // a client outside the cluster, and N1's way to the rest of the world
	P1  *Host // a pod on N1, a client
	A   *Host // a pod on N1, behind Services
	B   *Host // a pod on N2, behind Services
	C   *Host // a pod on N2, behind Services
}

// Host is a namespace with one main address per family.
type Host struct {
	*netns.Namespace
	// V4 and V6 are the addresses that others use for it.
	V4, V6 netip.Addr
	// Node is the node that a pod is on.
	Node string
}

// NewNetwork makes the namespaces, the cables between them and the servers of the pods.
func NewNetwork() (*Network, error) {
	n := &Network{}
	plan := netnstest.Plan{}
	leaves := []struct {
		host               **Host
		name, router, node string
		v4, v6             string
	}{
		{&n.X, "x", NodeName, "", "10.10.0.0/24", "fd00:10:10::/64"},
		{&n.API, "api", NodeName, "", "10.30.0.0/24", "fd00:10:30::/64"},
		{&n.N2, OtherNodeName, NodeName, "", "10.20.0.0/24", "fd00:10:20::/64"},
		{&n.P1, "p1", NodeName, NodeName, "10.244.1.0/30", "fd00:244:1::/126"},
		{&n.A, "a", NodeName, NodeName, "10.244.1.4/30", "fd00:244:1::4/126"},
		{&n.B, "b", OtherNodeName, OtherNodeName, "10.244.2.0/30", "fd00:244:2::/126"},
		{&n.C, "c", OtherNodeName, OtherNodeName, "10.244.2.4/30", "fd00:244:2::4/126"},
	}
	for _, leaf := range leaves {
		// In each subnet, the router has the first address and the leaf the second.
		cable := netns.Cable{Router: leaf.router, Leaf: leaf.name, Port: leaf.name}
		for _, subnet := range netns.Prefixes(leaf.v4, leaf.v6) {
			gateway := subnet.Addr().Next()
			cable.AtRouter = append(cable.AtRouter, netip.PrefixFrom(gateway, subnet.Bits()))
			cable.AtLeaf = append(cable.AtLeaf, netip.PrefixFrom(gateway.Next(), subnet.Bits()))
		}
		plan.Cables = append(plan.Cables, cable)
		*leaf.host = &Host{V4: cable.AtLeaf[0].Addr(), V6: cable.AtLeaf[1].Addr(), Node: leaf.node}
	}
	n.N1 = &Host{V4: netip.MustParseAddr("10.10.0.1"), V6: netip.MustParseAddr("fd00:10:10::1")}
	for _, pod := range netns.Prefixes("10.244.2.0/24", "fd00:244:2::/64") {
		plan.Routes = append(plan.Routes, netnstest.Route{Host: NodeName, To: pod, Via: n.N2.addr(pod.Addr().Is4())})
	}
	// A node has a default route, and a process on it can only connect to an address that has a
	// route before the proxy's rules have changed it. X forwards nothing, so packets that match no
	// rule end there.
	for _, addr := range []netip.Addr{n.X.V4, n.X.V6} {
		plan.Routes = append(plan.Routes, netnstest.Route{Host: NodeName, To: netns.Everything(addr), Via: addr})
	}
	for name, pod := range map[string]*Host{"a": n.A, "b": n.B, "c": n.C} {
		for _, addr := range []netip.Addr{pod.V4, pod.V6} {
			plan.Servers = append(plan.Servers, netnstest.Server{Name: name, Host: name, At: netip.AddrPortFrom(addr, BackendPort)})
		}
	}
	built, err := netnstest.NewNetwork(plan)
	if err != nil {
		return nil, err
	}
	n.Network, n.N1.Namespace = built, built.Hosts[NodeName]
	for _, leaf := range leaves {
		(*leaf.host).Namespace = built.Hosts[leaf.name]
	}
	return n, nil
}

// addr returns the main address of a family.
func (h *Host) addr(v4 bool) netip.Addr {
	if v4 {
		return h.V4
	}
	return h.V6
}

// Pods returns the pods that serve.
func (n *Network) Pods() []*Host { return []*Host{n.A, n.B, n.C} }

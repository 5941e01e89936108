// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"net/netip"

	"github.com/sluice-proxy/sluice/bench/rig"
	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/test/netnstest"
)

// network is one node between a client, the API server and all endpoints. Nothing on the machine
// itself changes.
//
//	client 203.0.113.10 ──┐
//	api    10.30.0.2    ──┼── node
//	all endpoints       ──┘
//	10.128.0.0/9          └── and what no rule has translated
type network struct {
	*netnstest.Network
	client, node, api *netns.Namespace
	endpoints         []*netnstest.Backend
}

// nodeName is the node that the proxy serves.
const nodeName = "node"

var (
	nodeAddress = netip.MustParseAddr("203.0.113.1")
	apiAddress  = netip.MustParseAddrPort("10.30.0.2:6443")
)

// podRange holds all endpoints, and is what the proxies are told to be the pods' addresses.
// serviceRange holds all ClusterIPs, and is the default of test/e2e/apiserver.
var (
	podRange     = netip.MustParsePrefix("10.128.0.0/9")
	serviceRange = netip.MustParsePrefix("172.30.0.0/16")
)

// The same in IPv6, for a cluster of both families.
var (
	nodeAddress6   = netip.MustParseAddr("fd00:203::1")
	endpointsHost6 = netip.MustParseAddr("fd00:40::2")
	podRange6      = netip.MustParsePrefix("fd00:10:128::/64")
	serviceRange6  = netip.MustParsePrefix("fd00:172:30::/112")
)

// newNetwork makes the network, in IPv4 or in both families.
func newNetwork(both bool) (*network, error) {
	const client, api, pods = "client", "api", "endpoints"
	p := netns.Prefixes
	plan := netnstest.Plan{Cables: []netns.Cable{
		{Router: nodeName, Leaf: client, Port: client, AtRouter: p("203.0.113.1/24"), AtLeaf: p("203.0.113.10/24")},
		{Router: nodeName, Leaf: api, Port: api, AtRouter: p("10.30.0.1/24"), AtLeaf: p("10.30.0.2/24")},
		{Router: nodeName, Leaf: pods, Port: pods, AtRouter: p("10.40.0.1/24"), AtLeaf: p("10.40.0.2/24")},
	}}
	if both {
		client, pods := &plan.Cables[0], &plan.Cables[2]
		client.AtRouter, client.AtLeaf = append(client.AtRouter, p("fd00:203::1/64")...), append(client.AtLeaf, p("fd00:203::10/64")...)
		pods.AtRouter, pods.AtLeaf = append(pods.AtRouter, p("fd00:40::1/64")...), append(pods.AtLeaf, p("fd00:40::2/64")...)
		for _, to := range []netip.Prefix{podRange6, serviceRange6} {
			plan.Routes = append(plan.Routes, netnstest.Route{Host: nodeName, To: to, Via: endpointsHost6})
		}
	}
	// What no rule translates ends there as well, and gets an answer that says so. A client that waits
	// for a rule learns immediately that no rule applies yet.
	for _, to := range []netip.Prefix{podRange, serviceRange} {
		plan.Routes = append(plan.Routes, netnstest.Route{Host: nodeName, To: to, Via: netip.MustParseAddr("10.40.0.2")})
	}
	built, err := netnstest.NewNetwork(plan)
	if err != nil {
		return nil, err
	}
	n := &network{Network: built, client: built.Hosts[client], node: built.Hosts[nodeName], api: built.Hosts[api]}
	err = rig.MakeLocal(built.Hosts[pods], podRange, serviceRange, podRange6, serviceRange6)
	for _, all := range []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()} {
		if err == nil && (both || all.Is4()) {
			err = n.listen(built.Hosts[pods], all)
		}
	}
	if err != nil {
		return nil, errors.Join(err, n.close())
	}
	return n, nil
}

// listen starts the endpoints of a family, and the servers that respond for a ClusterIP without a rule.
func (n *network) listen(host *netns.Namespace, all netip.Addr) error {
	for _, port := range []uint16{endpointPort, servicePort} {
		e, err := netnstest.StartBackend(host, "", netip.AddrPortFrom(all, port))
		if err != nil {
			return err
		}
		n.endpoints = append(n.endpoints, e)
	}
	return nil
}

// close ends the endpoints and lets go of the namespaces.
func (n *network) close() error {
	var errs []error
	for _, e := range n.endpoints {
		errs = append(errs, e.Close())
	}
	return errors.Join(append(errs, n.Close())...)
}

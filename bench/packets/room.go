// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"net/netip"

	"github.com/sluice-proxy/sluice/bench/rig"
	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/netnstest"
)

// room is the network of one variant. All rooms are alike:
//
//	client ── veth ── node ── veth ── pods
//
// The client is a pod of the node. Every address of a range is one of the pods, who listen at each.
type room struct {
	*netnstest.Network
	client, node, pods *netns.Namespace
	servers            service.PerFamily[server]
}

// server holds the descriptors of the sockets at which all pods of a family answer.
type server struct{ listener, datagrams int }

var (
	clientAddress = service.PerFamily[netip.Addr]{
		service.IPv4: netip.MustParseAddr("10.255.1.10"), service.IPv6: netip.MustParseAddr("fd00:10:255::10"),
	}
	nodeAddress = service.PerFamily[netip.Addr]{
		service.IPv4: netip.MustParseAddr("198.18.0.1"), service.IPv6: netip.MustParseAddr("fd00:18::1"),
	}
	podsRange = service.PerFamily[netip.Prefix]{
		service.IPv4: netip.MustParsePrefix("10.128.0.0/10"), service.IPv6: netip.MustParsePrefix("fd00:10:128::/48"),
	}
	clusterIPs      = service.PerFamily[netip.Addr]{netip.MustParseAddr("10.96.0.0"), netip.MustParseAddr("fd00:96::")}
	loadBalancerIPs = service.PerFamily[netip.Addr]{netip.MustParseAddr("198.19.0.0"), netip.MustParseAddr("fd00:19::")}
	nextHop         = service.PerFamily[netip.Addr]{
		service.IPv4: netip.MustParseAddr("198.18.0.2"), service.IPv6: netip.MustParseAddr("fd00:18::2"),
	}
)

// clientsMax is how many other addresses the client has, and the node.
const clientsMax = 8

var (
	otherClients = several("10.255.2.1", "fd00:10:256::1")
	otherNodes   = several("198.18.1.1", "fd00:18:1::1")
)

func several(v4, v6 string) (all service.PerFamily[[]netip.Addr]) {
	for f, first := range []string{v4, v6} {
		for n := range clientsMax {
			all[f] = append(all[f], rig.Address(netip.MustParseAddr(first), n))
		}
	}
	return all
}

// clusterCIDR holds the client and all pods.
const clusterCIDR = "10.128.0.0/9,fd00:10::/32"

func newRoom() (*room, error) {
	plan := netnstest.Plan{Cables: []netns.Cable{
		{Router: "node", Leaf: "client", Port: "to-client",
			AtRouter: netns.Prefixes("10.255.1.1/24", "fd00:10:255::1/64"),
			AtLeaf:   netns.Prefixes("10.255.1.10/24", "fd00:10:255::10/64")},
		{Router: "node", Leaf: "pods", Port: "to-pods",
			AtRouter: netns.Prefixes("198.18.0.1/30", "fd00:18::1/64"),
			AtLeaf:   netns.Prefixes("198.18.0.2/30", "fd00:18::2/64")},
	}}
	plan.Loopback = map[string][]netip.Addr{}
	for _, f := range service.Families {
		plan.Routes = append(plan.Routes, netnstest.Route{Host: "node", To: netns.Everything(nextHop[f]), Via: nextHop[f]})
		plan.Loopback["node"] = append(plan.Loopback["node"], otherNodes[f]...)
		plan.Loopback["client"] = append(plan.Loopback["client"], otherClients[f]...)
		for _, a := range otherClients[f] {
			plan.Routes = append(plan.Routes, netnstest.Route{Host: "node", To: netns.Single(a), Via: clientAddress[f]})
		}
	}
	built, err := netnstest.NewNetwork(plan)
	if err != nil {
		return nil, err
	}
	r := &room{Network: built, client: built.Hosts["client"], node: built.Hosts["node"], pods: built.Hosts["pods"]}
	for f := range r.servers {
		r.servers[f] = server{-1, -1}
	}
	if err := r.furnish(); err != nil {
		return nil, errors.Join(err, r.close())
	}
	return r, nil
}

// furnish makes the whole range of pods local to their host, and opens their sockets.
func (r *room) furnish() error {
	if err := rig.MakeLocal(r.pods, podsRange[:]...); err != nil {
		return err
	}
	return r.pods.Do(func() (err error) {
		for _, f := range service.Families {
			if r.servers[f], err = listen(f); err != nil {
				return err
			}
		}
		return nil
	})
}

func (r *room) close() error {
	for _, s := range r.servers {
		closeAll(s.listener, s.datagrams)
	}
	return r.Network.Close()
}

// SPDX-License-Identifier: Apache-2.0

package netnstest

import (
	"net/netip"
	"slices"

	"github.com/sluice-proxy/sluice/internal/host/netns"
)

// NodeAddresses are those of the node in a [NodePlan], by family, at the client's link.
var NodeAddresses = [2]netip.Addr{netip.MustParseAddr("203.0.113.1"), netip.MustParseAddr("2001:db8:ffff::1")}

// NodePlan is one node between a client and the pods, all of which are one host:
//
//	client .10 ── 203.0.113.0/24 ── node ── 10.244.1.0/24 ── pods
//
// The node's interfaces are "to-client" and "to-pods". The servers get the host "pods" and their addresses, which must be
// in 10.244.1.0/24 and fd00:10:244:1::/64. A family without a server has no addresses anywhere.
func NodePlan(servers ...Server) Plan {
	client, pods := netns.Cable{Router: "node", Leaf: "client", Port: "to-client"}, netns.Cable{Router: "node", Leaf: "pods", Port: "to-pods"}
	for i := range servers {
		servers[i].Host = pods.Leaf
		addr, bits, ends := servers[i].At.Addr(), 24, netns.Prefixes("203.0.113.1/24", "203.0.113.10/24", "10.244.1.1/24")
		if addr.Is6() {
			bits, ends = 64, netns.Prefixes("2001:db8:ffff::1/64", "2001:db8:ffff::10/64", "fd00:10:244:1::ff/64")
		}
		if !slices.Contains(client.AtRouter, ends[0]) {
			client.AtRouter, client.AtLeaf, pods.AtRouter = append(client.AtRouter, ends[0]), append(client.AtLeaf, ends[1]), append(pods.AtRouter, ends[2])
		}
		if at := netip.PrefixFrom(addr, bits); !slices.Contains(pods.AtLeaf, at) {
			pods.AtLeaf = append(pods.AtLeaf, at)
		}
	}
	return Plan{Servers: servers, Cables: []netns.Cable{pods, client}}
}

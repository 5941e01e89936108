package main

import (
	"fmt"
	"net/netip"

	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/service"
)

// network is one node between a client and the pods:
//
//	client .10 ── 203.0.113.0/24 ── node ── 10.244.1.0/24 ── pods .10 to .12
type network struct {
	*netns.Network
	client, node *netns.Namespace
}

// podsPerService pods serve each live Service, each Service on a port of its own. Two of them at a time
// are its endpoints.
const podsPerService = 3

// nodeAddress is the node's address on the client's link, for node ports.
var nodeAddress = service.PerFamily[netip.Addr]{
	service.IPv4: netip.MustParseAddr("203.0.113.1"),
	service.IPv6: netip.MustParseAddr("2001:db8:ffff::1"),
}

func podAddress(family service.Family, pod int) netip.Addr {
	template := service.PerFamily[string]{service.IPv4: "10.244.1.%d", service.IPv6: "fd00:10:244:1::%d"}[family]
	return netip.MustParseAddr(fmt.Sprintf(template, 10+pod))
}

func clusterIP(family service.Family, n int) netip.Addr {
	if family == service.IPv4 {
		return netip.AddrFrom4([4]byte{10, 96, byte(n >> 8), byte(n)})
	}
	return netip.MustParseAddr(fmt.Sprintf("fd00:10:96::%x", n))
}

func newNetwork(live int) (*network, error) {
	const client, node, pods = "client", "node", "pods"
	prefixes := netns.Prefixes
	toPods := netns.Cable{Router: node, Leaf: pods, Port: "to-pods", AtRouter: prefixes("10.244.1.1/24", "fd00:10:244:1::ff/64")}
	plan := netns.Plan{}
	for pod := range podsPerService {
		for _, family := range service.Families {
			bits := service.PerFamily[int]{service.IPv4: 24, service.IPv6: 64}[family]
			addr := podAddress(family, pod)
			toPods.AtLeaf = append(toPods.AtLeaf, netip.PrefixFrom(addr, bits))
			for s := range live {
				name, at := fmt.Sprintf("%s-%d", serviceName(s), pod), netip.AddrPortFrom(addr, podPort(s))
				plan.Servers = append(plan.Servers, netns.Server{Name: name, Host: pods, At: at})
			}
		}
	}
	plan.Cables = []netns.Cable{toPods, {
		Router: node, Leaf: client, Port: "to-client",
		AtRouter: prefixes("203.0.113.1/24", "2001:db8:ffff::1/64"), AtLeaf: prefixes("203.0.113.10/24", "2001:db8:ffff::10/64"),
	}}
	built, err := netns.Build(plan)
	if err != nil {
		return nil, err
	}
	return &network{built, built.Hosts[client], built.Hosts[node]}, nil
}

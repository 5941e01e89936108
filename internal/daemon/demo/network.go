package demo

import (
	"fmt"
	"net/netip"

	"github.com/sluice-proxy/sluice/internal/host/netns"
)

// network is the demo's small world:
//
//	client 203.0.113.10 ── node (the sandbox itself) ─┬─ pod-11 10.244.1.11
//	                                                  ├─ pod-12 10.244.1.12
//	                                                  ├─ pod-13 10.244.1.13
//	                                                  └─ pod-14 10.244.1.14 (stands by)
type network struct {
	*netns.Network
	client *netns.Namespace
}

// podNumbers are the last parts of the pods' addresses; the last one stands by.
var podNumbers = []int{11, 12, 13, 14}

// podPorts are where each pod answers: HTTP and DNS.
var podPorts = []uint16{8080, 5353}

func newNetwork() (*network, error) {
	const node, client = "node", "client"
	plan := netns.Plan{Here: node, Cables: []netns.Cable{{
		Router: node, Leaf: client, Port: "to-client",
		AtRouter: netns.Prefixes("203.0.113.1/32", "2001:db8:ffff::1/128"),
		AtLeaf:   netns.Prefixes("203.0.113.10/32", "2001:db8:ffff::10/128"),
	}}}
	for _, number := range podNumbers {
		name := fmt.Sprintf("pod-%d", number)
		addrs := netns.Prefixes(fmt.Sprintf("10.244.1.%d/32", number), fmt.Sprintf("fd00:10:244:1::%d/128", number))
		plan.Cables = append(plan.Cables, netns.Cable{
			Router: node, Leaf: name, Port: "to-" + name,
			AtRouter: netns.Prefixes("10.244.1.1/32", "fd00:10:244:1::1/128"), AtLeaf: addrs,
		})
		for _, addr := range addrs {
			for _, port := range podPorts {
				plan.Servers = append(plan.Servers, netns.Server{Name: name, Host: name, At: netip.AddrPortFrom(addr.Addr(), port)})
			}
		}
	}
	built, err := netns.Build(plan)
	if err != nil {
		return nil, err
	}
	return &network{built, built.Hosts[client]}, nil
}

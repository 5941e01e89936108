package faults

import (
	"fmt"
	"net/netip"

	"github.com/sluice-proxy/sluice/service"
)

// target is one frontend of a live Service, and how to talk to it.
type target struct {
	service  liveService
	family   service.Family
	protocol string // "tcp" or "udp"
	kind     frontendKind
}

type frontendKind string

const (
	clusterIP frontendKind = "ClusterIP"
	nodePort  frontendKind = "node port"
	balancer  frontendKind = "load balancer"
)

// String names the target for messages.
func (t target) String() string {
	return fmt.Sprintf("%s/%s %s %s", t.service.name, t.kind, t.family, t.protocol)
}

func (t target) addr() netip.AddrPort {
	switch {
	case t.kind == nodePort:
		return netip.AddrPortFrom(nodeAddrs[t.family], uint16(30000+t.service.number))
	case t.kind == balancer:
		return netip.AddrPortFrom(t.service.vip(t.family), 80)
	case t.protocol == "udp":
		return netip.AddrPortFrom(t.service.clusterIP(t.family), 53)
	default:
		return netip.AddrPortFrom(t.service.clusterIP(t.family), 80)
	}
}

// allTargets are the frontends of all live Services in both families.
func allTargets() []target {
	var all []target
	for _, family := range service.Families {
		for _, s := range liveServices {
			all = append(all, target{s, family, "tcp", clusterIP})
			if s.udp {
				all = append(all, target{s, family, "udp", clusterIP})
			}
			if s.external {
				all = append(all, target{s, family, "tcp", nodePort}, target{s, family, "tcp", balancer})
			}
		}
	}
	return all
}

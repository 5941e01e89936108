// SPDX-License-Identifier: Apache-2.0

package writertest

import (
	"net/netip"
	"slices"

	"github.com/sluice-proxy/sluice/service"
)

// Variety returns Services that together need every kind of object.
func (f Fixture) Variety() []service.Spec {
	named := func(spec service.Spec, name string, last byte) service.Spec {
		spec.Key.Name = name
		renumber := func(a netip.Addr) netip.Addr {
			b := a.AsSlice()
			b[len(b)-1] = last
			renumbered, _ := netip.AddrFromSlice(b)
			return renumbered
		}
		spec.Ports = slices.Clone(spec.Ports)
		if spec.Ports[0].NodePort != 0 {
			spec.Ports[0].NodePort += uint16(last)
		}
		spec.ClusterIPs[f.Family] = renumber(spec.ClusterIPs[f.Family])
		for _, list := range []*[]netip.Addr{&spec.LoadBalancerVIPs[f.Family], &spec.ExternalIPs[f.Family]} {
			*list = slices.Clone(*list)
			for i := range *list {
				(*list)[i] = renumber((*list)[i])
			}
		}
		return spec
	}
	local := named(f.Exposed(), "local", 1)
	local.ExternalLocal, local.InternalLocal = true, true
	guarded := named(f.Exposed(), "guarded", 2)
	guarded.SourceRanges[f.Family] = []netip.Prefix{
		f.Allowed, f.ClusterCIDR, netip.PrefixFrom(f.Node, f.Node.BitLen()), netip.PrefixFrom(f.Pod, f.Pod.BitLen()),
	}
	sticky := named(f.Exposed(), "sticky", 3)
	sticky.AffinitySeconds, sticky.ExternalLocal = 600, true
	datagrams := named(f.Exposed(), "datagrams", 4)
	datagrams.Ports[0].Protocol = service.UDP
	denying := named(guarded, "denying", 5)
	denying.DenyRanges[f.Family] = service.MergeRanges([]netip.Prefix{f.ClusterCIDR, netip.PrefixFrom(f.Second, f.Second.BitLen())})
	deaf := named(denying, "deaf", 6)
	deaf.NoEndpoints, deaf.AffinitySeconds = service.NoEndpointsDrop, 600
	passing := named(denying, "passing", 7)
	passing.NoEndpoints = service.NoEndpointsPass
	return []service.Spec{f.Spec(), local, guarded, sticky, datagrams, denying, deaf, passing}
}

// AllFacts are node facts that lead to different rules.
func (f Fixture) AllFacts() map[string]service.NodeFacts {
	usual := f.Facts()
	byInterface := f.Facts()
	byInterface.Detect[f.Family] = service.LocalDetector{Interface: "cbr0"}
	byInterface.NodePorts[f.Family] = service.NodePortAddresses{Addresses: []netip.Addr{f.Node, f.Second}}
	byPattern := f.Facts()
	byPattern.Detect[f.Family] = service.LocalDetector{Interface: "veth+"}
	byPattern.ServiceCIDRs[f.Family] = []netip.Prefix{f.ServiceCIDR, netip.PrefixFrom(f.VIP, f.VIP.BitLen()-3).Masked()}
	masqueradeAll := f.Facts()
	masqueradeAll.MasqueradeAll = true
	odd := f.Facts()
	odd.Detect[f.Family].CIDR = netip.PrefixFrom(f.ClusterCIDR.Addr(), f.ClusterCIDR.Bits()-3).Masked()
	nothing := service.NodeFacts{Name: "n1"}
	return map[string]service.NodeFacts{
		"usual": usual, "by interface": byInterface, "by pattern": byPattern,
		"masquerade all": masqueradeAll, "odd prefix": odd, "nothing known": nothing,
	}
}

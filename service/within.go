// SPDX-License-Identifier: Apache-2.0

package service

import (
	"net/netip"
	"slices"
)

// Within returns the view without the frontends that the spec no longer requests. Everything else stays as it was. It
// replaces Resolve for a Service that is too large to be resolved. The cost is linear in the frontends.
func (v *View) Within(spec *Spec, facts *NodeFacts) View {
	kept := *v
	if v.HealthCheckNodePort != spec.HealthCheckNodePort {
		kept.HealthCheckNodePort = 0
	}
	// The name of a port may change; number and protocol are unique within a Service.
	type portKey struct {
		number   uint16
		protocol Protocol
	}
	wanted := make(map[portKey]*Port, len(spec.Ports))
	for i := range spec.Ports {
		wanted[portKey{spec.Ports[i].Port, spec.Ports[i].Protocol}] = &spec.Ports[i]
	}
	for _, family := range Families {
		before := v.Ports[family]
		kept.Ports[family] = nil
		externalIPs := facts.externalIPs(spec, family)
		for _, port := range before {
			now := wanted[portKey{port.Port, port.Protocol}]
			ip := spec.ClusterIPs[family]
			if now == nil || !ip.IsValid() || port.ClusterIP.IsValid() && port.ClusterIP != ip {
				continue
			}
			if now.NodePort != port.NodePort {
				port.NodePort = 0
			}
			port.ExternalIPs = common(port.ExternalIPs, externalIPs)
			port.LoadBalancerVIPs = common(port.LoadBalancerVIPs, spec.LoadBalancerVIPs[family])
			if now.NotOutside {
				port.ExternalIPs, port.LoadBalancerVIPs = nil, nil
			}
			port.deny(spec.Denied[family])
			kept.Ports[family] = append(kept.Ports[family], port)
		}
	}
	return kept
}

// common returns the addresses of the first list that are in the other one, too.
func common(list, other []netip.Addr) []netip.Addr {
	if slices.Equal(list, other) {
		return list
	}
	in := make(map[netip.Addr]bool, len(other))
	for _, addr := range other {
		in[addr] = true
	}
	return slices.DeleteFunc(slices.Clone(list), func(addr netip.Addr) bool { return !in[addr] })
}

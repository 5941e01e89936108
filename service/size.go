// SPDX-License-Identifier: Apache-2.0

package service

import "slices"

// PortSize is how much one service port requests in one family. It is counted without resolving the port, so that
// counting costs little, even for a huge Service.
type PortSize struct {
	// Addresses counts the ClusterIP, external IPs and load balancer VIPs.
	Addresses int
	// VIPs counts the load balancer VIPs, Ranges the source ranges that limit them.
	VIPs, Ranges int
	// Denied counts the ranges of sources that may not reach any frontend but the ClusterIP.
	Denied int
	// NodePort is set if the port has a node port.
	NodePort bool
	// Endpoints counts all endpoints, ready or not. An endpoint in two slices counts twice.
	Endpoints int
	// FullTable is set if the Service requests an algorithm other than Random, or if weights may differ.
	FullTable bool
}

// Sizes calls yield with the size of each service port in a family, if the Service has a ClusterIP of it. The slices
// are those of this Service.
func Sizes(spec *Spec, from []*Slice, family Family, yield func(PortSize)) {
	if spec == nil || !spec.ClusterIPs[family].IsValid() {
		return
	}
	var g gathering
	if len(spec.Ports) > portsUnindexed {
		g.index(from)
	}
	fullTable := spec.Balancing != Random || spec.Adaptation.SlowStart > 0 || spec.Zones.Share > 0 || slices.ContainsFunc(from, func(s *Slice) bool { return s.Weight > 1 })
	for i := range spec.Ports {
		port := &spec.Ports[i]
		size := PortSize{
			FullTable: fullTable,
			Addresses: 1 + len(spec.ExternalIPs[family]) + len(spec.LoadBalancerVIPs[family]),
			VIPs:      len(spec.LoadBalancerVIPs[family]), Ranges: len(spec.SourceRanges[family]),
			Denied:   len(spec.DenyRanges[family]),
			NodePort: port.NodePort != 0,
		}
		if port.NotOutside {
			size.Addresses, size.VIPs = 1, 0
		}
		g.each(family, port, from, func(slice int32, _ uint16) { size.Endpoints += len(from[slice].Endpoints) })
		yield(size)
	}
}

// Frontends returns the number of frontends, if node ports answer on hostAddresses addresses of the host.
func (s PortSize) Frontends(hostAddresses int) int {
	if s.NodePort {
		return s.Addresses + hostAddresses
	}
	return s.Addresses
}

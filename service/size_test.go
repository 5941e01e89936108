// SPDX-License-Identifier: Apache-2.0

package service

import (
	"fmt"
	"net/netip"
	"testing"
)

// TestSizes_LargestObjects: Sizes counts the largest objects that the API accepts at low cost. Resolving this Service
// would make 200 million endpoints.
func TestSizes_LargestObjects(t *testing.T) {
	const ports, addresses, slices, endpoints = 20_000, 50_000, 100, 100
	spec := &Spec{}
	spec.ClusterIPs[IPv4] = netip.MustParseAddr("10.96.0.1")
	spec.ExternalIPs[IPv4] = make([]netip.Addr, addresses)
	var from []*Slice
	for i := range ports {
		spec.Ports = append(spec.Ports, Port{Name: fmt.Sprint(i), Port: uint16(i + 1)})
	}
	for range slices {
		s := &Slice{Endpoints: make([]SliceEndpoint, endpoints)}
		for i := range ports {
			s.Ports = append(s.Ports, SlicePort{Name: fmt.Sprint(i), Port: 80})
		}
		from = append(from, s)
	}
	// A product of ports and endpoints would take hours.
	frontends, reals := 0, 0
	Sizes(spec, from, IPv4, func(p PortSize) {
		frontends += p.Frontends(1)
		reals += p.Endpoints
	})
	if frontends != ports*(1+addresses) || reals != ports*slices*endpoints {
		t.Errorf("%d frontends, %d endpoints", frontends, reals)
	}
	Sizes(spec, from, IPv6, func(PortSize) { t.Error("a port in a family that the Service does not have") })
	Sizes(nil, from, IPv4, func(PortSize) { t.Error("a port of a Service that is gone") })
}

// TestSizes_CountRequested: Sizes counts the addresses, ranges and endpoints of each port in one family.
func TestSizes_CountRequested(t *testing.T) {
	addr := netip.MustParseAddr
	spec := &Spec{Ports: []Port{{Name: "a", Port: 80, NodePort: 30080}, {Name: "b", Port: 81}}}
	spec.ClusterIPs[IPv4], spec.ClusterIPs[IPv6] = addr("10.96.0.1"), addr("fd00::1")
	spec.ExternalIPs[IPv4] = []netip.Addr{addr("192.0.2.1"), addr("192.0.2.2")}
	spec.LoadBalancerVIPs[IPv4] = []netip.Addr{addr("192.0.2.3")}
	spec.SourceRanges[IPv4] = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")}
	from := []*Slice{
		{Family: IPv4, Ports: []SlicePort{{Name: "a", Port: 1}, {Name: "a", Port: 2}}, Endpoints: make([]SliceEndpoint, 3)},
		{Family: IPv6, Ports: []SlicePort{{Name: "a", Port: 1}}, Endpoints: make([]SliceEndpoint, 5)},
	}
	var got []PortSize
	Sizes(spec, from, IPv4, func(p PortSize) { got = append(got, p) })
	want := []PortSize{{Addresses: 4, VIPs: 1, Ranges: 1, NodePort: true, Endpoints: 6},
		{Addresses: 4, VIPs: 1, Ranges: 1}}
	if fmt.Sprint(got) != fmt.Sprint(want) || got[0].Frontends(2) != 6 || got[1].Frontends(2) != 4 {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// SPDX-License-Identifier: Apache-2.0

package service

import (
	"fmt"
	"net/netip"
	"testing"
)

// benchmarkSlices spreads ready endpoints with zone hints over slices of 100, as
// the slice controller does, in no particular order.
func benchmarkSlices(b *testing.B, family Family, endpoints int) (from []*Slice) {
	base := address(family, 'a').As16()
	if family == IPv4 {
		base = netip.AddrFrom4([4]byte{10, 244, 0, 0}).As16()
	}
	zones := []string{"za", "zb", "zc"}
	for i := range endpoints {
		if i%100 == 0 {
			s := newSlice(b, family, fmt.Sprintf("svc1-%d", i), "")
			from = append(from, s)
		}
		s := from[len(from)-1]
		n := i * 7919 % 65521
		base[14], base[15] = byte(n>>8), byte(n)
		s.Endpoints = append(s.Endpoints, SliceEndpoint{
			Addr:     netip.AddrFrom16(base).Unmap(),
			Location: &Location{NodeName: fmt.Sprintf("node-%d", i%500), ForZones: zones[i%3 : i%3+1]},
			Ready:    true,
			Serving:  true,
		})
	}
	return from
}

func BenchmarkResolve(b *testing.B) {
	for _, family := range Families {
		for _, endpoints := range []int{10, 5000} {
			b.Run(fmt.Sprintf("%s/%d", family, endpoints), func(b *testing.B) {
				spec := newSpec()
				spec.ClusterIPs[1-family] = netip.Addr{}
				from, node := benchmarkSlices(b, family, endpoints), facts()
				b.ReportAllocs()
				for b.Loop() {
					Resolve(testKey, spec, from, node)
				}
			})
		}
	}
}

func BenchmarkViewEqual(b *testing.B) {
	from, node := benchmarkSlices(b, IPv4, 5000), facts()
	x, y := Resolve(testKey, newSpec(), from, node), Resolve(testKey, newSpec(), from, node)
	b.ReportAllocs()
	for b.Loop() {
		if !x.Equal(&y) {
			b.Fatal("different")
		}
	}
}

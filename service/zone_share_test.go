// SPDX-License-Identifier: Apache-2.0

package service

import (
	"fmt"
	"net/netip"
	"testing"
)

// TestZoneShare_HoldsForAllWeights: a zone share of 90 % holds for any number of endpoints with weights up to 65535,
// which observations multiply by up to 4.
func TestZoneShare_HoldsForAllWeights(t *testing.T) {
	for _, c := range []struct {
		endpoints int
		weight    uint16
		percent   uint16
	}{{100, 65535, 0}, {1000, 65535, 0}, {6000, 65535, 0}, {600, 65535, 400}, {300, 65535, 400}, {2000, 20000, 400}} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			spec := &Spec{Key: Key{Namespace: "a", Name: "b"}, Zones: ZonePolicy{Share: 90}}
			spec.ClusterIPs[IPv4] = netip.MustParseAddr("172.30.0.1")
			spec.Ports = []Port{{Name: "p", Protocol: TCP, Port: 80}}
			var from []*Slice
			o := &Observed{}
			for n := range c.endpoints {
				if n%100 == 0 {
					from = append(from, &Slice{Service: spec.Key, Name: fmt.Sprintf("s%04d", n), Family: IPv4, Weight: c.weight,
						Ports: []SlicePort{{Name: "p", Protocol: TCP, Port: 8080}}})
				}
				s := from[len(from)-1]
				addr := netip.AddrFrom4([4]byte{10, 1, byte(n >> 8), byte(n)})
				zone := "z1"
				if n%3 != 0 {
					zone = "z2"
				}
				s.Endpoints = append(s.Endpoints, SliceEndpoint{Addr: addr, Ready: true, Serving: true,
					Location: &Location{NodeName: "n", ForZones: []string{zone}}})
				if c.percent != 0 {
					o.Endpoints = append(o.Endpoints, ObservedEndpoint{AddrPort: netip.AddrPortFrom(addr, 8080), Percent: c.percent})
				}
			}
			if c.percent != 0 {
				from = append(from, ObservedSlice(spec.Key, o))
			}
			view := Resolve(spec.Key, spec, from, &NodeFacts{Name: "n", Zone: "z1"})
			here, all := 0, 0
			for _, e := range view.Ports[IPv4][0].Cluster {
				b := e.AddrPort.Addr().As4()
				n := int(b[2])<<8 | int(b[3])
				all += e.Share()
				if n%3 == 0 {
					here += e.Share()
				}
			}
			if got := 100 * float64(here) / float64(all); got < 88 || got > 92 {
				t.Errorf("share of the zone: %.1f %%", got)
			}
		})
	}
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/netip"
	"testing"
)

// TestPlan: every cluster has Services of every class, and each address and port belongs to one Service only.
func TestPlan(t *testing.T) {
	for _, n := range []int{20, 200, 1000, 5000, 30000} {
		count := map[class]int{}
		seen := map[netip.AddrPort]bool{}
		claim := func(at netip.AddrPort) {
			if seen[at] {
				t.Fatalf("%d Services: two have %s", n, at)
			}
			seen[at] = true
		}
		for _, it := range plan(n) {
			count[it.class]++
			if claim(it.frontend()); !serviceRange.Contains(it.clusterIP()) {
				t.Errorf("%d Services: ClusterIP %s of number %d", n, it.clusterIP(), it.number)
			}
			for _, e := range it.endpoints {
				claim(netip.AddrPortFrom(endpointAddress(e), endpointPort))
			}
		}
		for _, c := range []class{plain, udp, nodePorts, affinity, empty, single, singleUDP, zoned} {
			if count[c] == 0 {
				t.Errorf("%d Services: none is of class %q", n, c)
			}
		}
		if count[single]+count[singleUDP] > singlesMax*5/4 || count[zoned] > zonedMax*5/4 {
			t.Errorf("%d Services: %v", n, count)
		}
	}
	last := &item{number: 30000 + bulkMax}
	if !serviceRange.Contains(last.clusterIP()) || !podRange.Contains(endpointAddress((30000+bulkMax)*addressesEach+4_000_000)) {
		t.Error("the ranges have no room for the largest cluster")
	}
}

func TestItem_Slices(t *testing.T) {
	it := &item{class: plain, namespace: "a", name: "b"}
	for e := range 250 {
		it.endpoints = append(it.endpoints, e)
	}
	if it.sliceCount() != 3 || len(it.slice(0).Endpoints) != 100 || len(it.slice(2).Endpoints) != 50 {
		t.Errorf("%d slices, the last of %d endpoints; want 3 and 50", it.sliceCount(), len(it.slice(2).Endpoints))
	}
	both := &item{class: zoned, endpoints: []int{1, 2}}
	for i, e := range both.slice(0).Endpoints {
		if len(e.Hints.ForZones) != 1 || e.Hints.ForZones[0].Name != zones[i] {
			t.Errorf("endpoint %d has hints %v, want zone %s alone", i, e.Hints, zones[i])
		}
	}
	if hints := it.slice(0).Endpoints[1].Hints.ForZones; len(hints) != len(zones) {
		t.Errorf("hints %v, want all zones", hints)
	}
}

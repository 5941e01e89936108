// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/netip"
	"testing"

	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source/reduce"
)

// TestCluster_EverySizeIsComplete: a cluster of any size has Services of every kind and no address twice, and its pods
// are in the network's range.
func TestCluster_EverySizeIsComplete(t *testing.T) {
	for _, services := range []int{servicesMin, 100, 1000, 20000} {
		c := cluster{services, 10, service.Families[:]}
		for _, k := range []kind{plain, datagrams, nodePort, empty, sourceRanges, affinity, affinityBig} {
			if len(c.numbers(k)) == 0 || len(c.spread(k)) > targetsMax {
				t.Errorf("%d Services: %d of kind %s, %d chosen", services, len(c.numbers(k)), k, len(c.spread(k)))
			}
		}
		seen := map[netip.Addr]bool{}
		for i := range services + 1 {
			for _, f := range service.Families {
				if seen[c.clusterIP(f, i)] {
					t.Fatalf("%d Services: two have %s", services, c.clusterIP(f, i))
				}
				seen[c.clusterIP(f, i)] = true
				for _, a := range c.endpointsOf(f, i) {
					if seen[a] || !podsRange[f].Contains(a) {
						t.Fatalf("%d Services: pod %s of two Services, or outside %s", services, a, podsRange[f])
					}
					seen[a] = true
				}
			}
			if port := c.nodePort(i); c.kindOf(i) == nodePort && (port < 30000 || port > 32767) {
				t.Fatalf("%d Services: node port %d", services, port)
			}
		}
	}
}

// TestCluster_ObjectsAreValid: the proxy reduces the generated Services and EndpointSlices without a warning, and finds
// their addresses.
func TestCluster_ObjectsAreValid(t *testing.T) {
	c := cluster{100, 10, service.Families[:]}
	for i := range c.services + 1 {
		spec, warnings := reduce.Policy{}.Service(c.service(i))
		if len(warnings) > 0 || spec.ClusterIPs[service.IPv6] != c.clusterIP(service.IPv6, i) {
			t.Fatalf("%+v, %v", spec, warnings)
		}
		endpoints := 0
		for _, slice := range c.slices(i) {
			reduced, warnings := reduce.Policy{}.EndpointSlice(slice)
			if len(warnings) > 0 || reduced.Service != spec.Key {
				t.Fatalf("%+v, %v", reduced, warnings)
			}
			endpoints += len(reduced.Endpoints)
		}
		if want := 2 * len(c.endpointsOf(service.IPv4, i)); endpoints != want {
			t.Fatalf("Service %d has %d endpoints, want %d", i, endpoints, want)
		}
	}
}

// TestCases_HaveTargets: every case has targets at the smallest size, and each target lists its pods.
func TestCases_HaveTargets(t *testing.T) {
	c := cluster{servicesMin, 10, service.Families[:]}
	for _, b := range cases {
		for _, f := range service.Families {
			targets := b.to(c, f)
			if len(targets) == 0 {
				t.Errorf("%s has no targets", b.name)
			}
			for _, to := range targets {
				if len(to.pods) == 0 || service.FamilyOf(to.at.Addr()) != f {
					t.Errorf("%s: %+v", b.name, to)
				}
			}
		}
	}
}

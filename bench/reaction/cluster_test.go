// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source/reduce"
)

// addresses returns the endpoints of a change's slices, as the proxy reads them.
func addresses(t *testing.T, c change) (found []netip.Addr) {
	t.Helper()
	for _, event := range c.events {
		slice, ok := event.Object.(*discoveryv1.EndpointSlice)
		if !ok {
			continue
		}
		reduced, warnings := reduce.Policy{}.EndpointSlice(slice)
		if len(warnings) > 0 || reduced.Service != c.key {
			t.Fatalf("slice of %v: belongs to %v, %v", c.key, reduced.Service, warnings)
		}
		for _, e := range reduced.Endpoints {
			found = append(found, e.Addr)
		}
	}
	return found
}

// TestCluster_ObjectsAreValid: the proxy reduces the generated Services and EndpointSlices without a warning, and finds
// their addresses.
func TestCluster_ObjectsAreValid(t *testing.T) {
	c := newCluster(3, 250)
	added := c.addService(2)
	if got := addresses(t, added); len(got) != 250 || added.objects != 250 || len(added.events) != 1+3 {
		t.Errorf("%d endpoints in %d events, %d objects awaited; want 250 in 1 Service and 3 slices", len(got), len(added.events), added.objects)
	}
	spec, warnings := reduce.Policy{}.Service(added.events[0].Object.(*corev1.Service))
	if len(warnings) > 0 || spec.Key != added.key || spec.ClusterIPs[service.IPv4].String() != "10.96.1.2" {
		t.Errorf("Service %+v, %v", spec, warnings)
	}
	for _, f := range firsts {
		svc, slice := c.first(f)
		spec, warnings := reduce.Policy{}.Service(svc)
		if len(warnings) > 0 || spec.Key != f.key {
			t.Errorf("%v: %+v, %v", f.key, spec, warnings)
		}
		if reduced, warnings := (reduce.Policy{}).EndpointSlice(slice); len(warnings) > 0 || reduced.Endpoints[0].Addr != f.endpoint.Addr() {
			t.Errorf("%v: %+v, %v", f.key, reduced, warnings)
		}
	}
}

// TestCluster_ChangesOneEndpoint: each change of a Service replaces, adds or removes exactly one endpoint.
func TestCluster_ChangesOneEndpoint(t *testing.T) {
	c := newCluster(10, 4)
	before := addresses(t, c.modified(5, 0))
	difference := func(what string, after []netip.Addr, size, kept int) {
		t.Helper()
		same := 0
		for _, a := range after {
			if slices.Contains(before, a) {
				same++
			}
		}
		if len(after) != size || same != kept {
			t.Errorf("%s: %v became %v, want %d endpoints and %d of the old", what, before, after, size, kept)
		}
		before = after
	}
	difference("replaced", addresses(t, c.replaceEndpoint(5)), 4, 3)
	difference("replaced again", addresses(t, c.replaceEndpoint(5)), 4, 3)
	difference("up", addresses(t, c.scaleUp(5)), 5, 4)
	difference("down", addresses(t, c.scaleDown(5)), 4, 4)
	if other := addresses(t, c.modified(6, 0)); slices.ContainsFunc(other, func(a netip.Addr) bool { return slices.Contains(before, a) }) {
		t.Errorf("two Services share an endpoint: %v and %v", before, other)
	}
}

// TestSpread_VisitsAllBeforeRepeating: spread selects every Service once before it selects one again.
func TestSpread_VisitsAllBeforeRepeating(t *testing.T) {
	for _, services := range []int{300, 1000, 10000, 50000} {
		c := newCluster(services, 1)
		seen := map[int]bool{}
		for event := range services {
			seen[spread(c, event)] = true
		}
		if len(seen) != services {
			t.Errorf("%d of %d Services have had their turn", len(seen), services)
		}
	}
}

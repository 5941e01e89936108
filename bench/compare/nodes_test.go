package main

import (
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestFleetSizes(t *testing.T) {
	for nodes, want := range map[int][]int{200: {0, 50, 200}, 2: {0, 1, 2}, 1: {0, 1}} {
		if got := fleetSizes(nodes); !slices.Equal(got, want) {
			t.Errorf("%d nodes: %v, want %v", nodes, got, want)
		}
	}
}

// No address is used twice, and each node has its own network with the hub.
func TestPlanFleet(t *testing.T) {
	plan, members := planFleet(1000)
	if len(members) != 1000 || len(plan.Cables) != 1001 {
		t.Fatalf("%d nodes, %d cables", len(members), len(plan.Cables))
	}
	seen := map[netip.Addr]string{}
	for _, c := range plan.Cables {
		if c.Router != hub || len(c.Port) > 15 || c.AtRouter[0].Masked() != c.AtLeaf[0].Masked() {
			t.Errorf("%+v", c)
		}
		for _, end := range []netip.Prefix{c.AtRouter[0], c.AtLeaf[0]} {
			if before := seen[end.Addr()]; before != "" {
				t.Errorf("%s and %s have %s", before, c.Leaf, end)
			}
			seen[end.Addr()] = c.Leaf
		}
	}
}

// All Services have their endpoints, few have an address.
func TestPlanOfFleet(t *testing.T) {
	served := 0
	for _, it := range planOfFleet(500) {
		s := it.service()
		switch {
		case s.Spec.Type != corev1.ServiceTypeExternalName:
			served++
		case s.Spec.ClusterIP != "" || s.Spec.ExternalName == "" || s.Spec.Ports[0].NodePort != 0:
			t.Errorf("%s: %+v", s.Name, s.Spec)
		}
		if it.class != empty && len(it.slice(0).Endpoints) == 0 {
			t.Errorf("%s, %s: no endpoints", it.name, it.class)
		}
	}
	if served != fleetServed {
		t.Errorf("%d Services have an address, want %d", served, fleetServed)
	}
}

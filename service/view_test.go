// SPDX-License-Identifier: Apache-2.0

package service

import (
	"net/netip"
	"slices"
	"testing"
)

// TestView_HealthPort: a family in which the Service has no ClusterIP opens no health port.
func TestView_HealthPort(t *testing.T) {
	spec := policySpec("Cluster", "Local")
	spec.ClusterIPs[IPv6] = netip.Addr{}
	view := Resolve(testKey, spec, nil, facts())
	if got := view.HealthPort(IPv4); got != 32000 {
		t.Errorf("IPv4: %d, want 32000", got)
	}
	if got := view.HealthPort(IPv6); got != 0 {
		t.Errorf("IPv6: %d, want 0", got)
	}
}

// TestPortView_UsesClusterAndLocal: UsesCluster and UsesLocal report which endpoint sets a port needs, for every mix of
// policies, and only these sets are filled.
func TestPortView_UsesClusterAndLocal(t *testing.T) {
	tests := []struct {
		internalLocal, externalLocal, accessible bool
		usesCluster, usesLocal                   bool
	}{
		{false, false, false, true, false},
		{false, false, true, true, false},
		{false, true, false, true, false},
		{false, true, true, true, true},
		{true, false, false, false, true},
		{true, false, true, true, true},
		{true, true, false, false, true},
		{true, true, true, true, true},
	}
	for _, tt := range tests {
		eachFamily(t, func(t *testing.T, family Family) {
			spec := newSpec()
			spec.InternalLocal, spec.ExternalLocal = tt.internalLocal, tt.externalLocal
			if tt.accessible {
				spec.Ports[0].NodePort = 30080
			}
			_, port := resolveOne(t, family, spec, "n R; a R", facts())
			if port.UsesCluster() != tt.usesCluster || (port.Cluster != nil) != tt.usesCluster {
				t.Errorf("%+v: UsesCluster = %v, Cluster = %v", tt, port.UsesCluster(), port.Cluster)
			}
			if port.UsesLocal() != tt.usesLocal || (port.Local != nil) != tt.usesLocal {
				t.Errorf("%+v: UsesLocal = %v, Local = %v", tt, port.UsesLocal(), port.Local)
			}
		})
	}
}

func TestPortView_ExternallyAccessible(t *testing.T) {
	addrs := []netip.Addr{netip.MustParseAddr("192.0.2.99")}
	tests := []struct {
		name string
		port PortView
		want bool
	}{
		{"ClusterIP only", PortView{ClusterIP: addrs[0]}, false},
		{"node port", PortView{NodePort: 30080}, true},
		{"external IP", PortView{ExternalIPs: addrs}, true},
		{"load balancer", PortView{LoadBalancerVIPs: addrs}, true},
	}
	for _, tt := range tests {
		if got := tt.port.ExternallyAccessible(); got != tt.want {
			t.Errorf("%s: got %v", tt.name, got)
		}
	}
}

// TestPortView_ServesInternal: ServesInternal reports whether traffic to the ClusterIP has an endpoint under the
// internal policy.
func TestPortView_ServesInternal(t *testing.T) {
	some := []Endpoint{{}}
	tests := []struct {
		port PortView
		want bool
	}{
		{PortView{HasAny: false}, false},
		{PortView{HasAny: true, Cluster: some}, true},
		{PortView{InternalLocal: true, HasAny: false}, false},
		{PortView{InternalLocal: true, HasAny: true, Local: some}, true},
		{PortView{InternalLocal: true, HasAny: true, Cluster: some}, false},
		{PortView{ExternalLocal: true, HasAny: true, Cluster: some}, true},
	}
	for _, tt := range tests {
		if got := tt.port.ServesInternal(); got != tt.want {
			t.Errorf("%+v: got %v", tt.port, got)
		}
	}
}

// TestPortView_ServesExternal: ServesExternal reports whether outside traffic to node ports, external IPs and load
// balancer VIPs has an endpoint under the external policy.
func TestPortView_ServesExternal(t *testing.T) {
	some := []Endpoint{{}}
	tests := []struct {
		port PortView
		want bool
	}{
		{PortView{HasAny: false}, false},
		{PortView{HasAny: true, Cluster: some}, true},
		{PortView{ExternalLocal: true, HasAny: false}, false},
		{PortView{ExternalLocal: true, HasAny: true, Cluster: some, Local: some}, true},
		{PortView{ExternalLocal: true, HasAny: true, Cluster: some}, false},
		{PortView{InternalLocal: true, HasAny: true, Cluster: some}, true},
	}
	for _, tt := range tests {
		if got := tt.port.ServesExternal(); got != tt.want {
			t.Errorf("%+v: got %v", tt.port, got)
		}
	}
}

// TestPortView_Reachable: Reachable returns every endpoint to which this node may send, under each mix of policies,
// sorted.
func TestPortView_Reachable(t *testing.T) {
	tests := []struct {
		name               string
		internal, external string
		endpoints          string
		want               string
	}{
		{"Cluster only", "Cluster", "-", "n R; a R", "a n"},
		{"Local only", "Local", "-", "n R; a R", "n"},
		{"both", "Cluster", "Local", "n R; a R", "a n"},
		{"Local from the fallback", "Cluster", "Local", "n S; a R; z R", "a n z"},
		{"hints leave local ones out of Cluster", "Cluster", "Local", "n R -/{zb}; a R -/{za}", "a n"},
		{"nothing usable", "Cluster", "Local", "n X; a X", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			eachFamily(t, func(t *testing.T, family Family) {
				_, port := resolveOne(t, family, policySpec(tt.internal, tt.external), tt.endpoints, facts())
				got := port.Reachable()
				if letters(got) != tt.want {
					t.Errorf("got %q, want %q", letters(got), tt.want)
				}
				if !slices.IsSortedFunc(got, Endpoint.Compare) {
					t.Errorf("not sorted: %v", got)
				}
			})
		})
	}
}

// TestPortView_ReachableSharesMemory: Reachable allocates nothing if the Cluster set contains the Local set.
func TestPortView_ReachableSharesMemory(t *testing.T) {
	_, port := resolveOne(t, IPv4, policySpec("Cluster", "Local"), "n R; a R", facts())
	allocations := testing.AllocsPerRun(10, func() { port.Reachable() })
	if allocations != 0 {
		t.Errorf("%v allocations, want none when Cluster holds Local", allocations)
	}
}

package service

import (
	"net/netip"
	"testing"
)

// TestRemoves: pairs of states before and after.
func TestRemoves(t *testing.T) {
	type state struct {
		internal, external string
		endpoints          string
	}
	tests := []struct {
		name          string
		before, after state
		want          bool
	}{
		{"nothing changed", state{"Cluster", "-", "a R; b R"}, state{"Cluster", "-", "a R; b R"}, false},
		{"one added", state{"Cluster", "-", "a R"}, state{"Cluster", "-", "a R; b R"}, false},
		{"one gone", state{"Cluster", "-", "a R; b R"}, state{"Cluster", "-", "a R"}, true},
		{"the last one gone", state{"Cluster", "-", "a R"}, state{"Cluster", "-", ""}, true},
		{"one replaced", state{"Cluster", "-", "a R"}, state{"Cluster", "-", "b R"}, true},
		{"one no longer ready", state{"Cluster", "-", "a R; b R"}, state{"Cluster", "-", "a R; b X"}, true},
		{"the only one terminates but serves", state{"Cluster", "-", "a R"}, state{"Cluster", "-", "a S"}, false},
		{"an unusable one gone", state{"Cluster", "-", "a R; b X"}, state{"Cluster", "-", "a R"}, false},
		{"a remote one gone under Local", state{"Local", "-", "n R; a R"}, state{"Local", "-", "n R"}, false},
		{"the local one gone under Local", state{"Local", "-", "n R; a R"}, state{"Local", "-", "a R"}, true},
		{"Local fallback ends, Cluster had others", state{"Cluster", "Local", "n S; a R"}, state{"Cluster", "Local", "n X; a R"}, true},
		{"in Local before, in Cluster now", state{"Cluster", "Local", "n S; a R"}, state{"Cluster", "Local", "n R; a R"}, false},
		{"out of this zone", state{"Cluster", "-", "a R; b R"}, state{"Cluster", "-", "a R -/{za}; b R -/{zb}"}, true},
		{"policy narrows to Local", state{"Cluster", "-", "n R; a R"}, state{"Local", "-", "n R; a R"}, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			eachFamily(t, func(t *testing.T, family Family) {
				before, _ := resolveOne(t, family, policySpec(tt.before.internal, tt.before.external), tt.before.endpoints, facts())
				after, _ := resolveOne(t, family, policySpec(tt.after.internal, tt.after.external), tt.after.endpoints, facts())
				if got := after.Removes(&before); got != tt.want {
					t.Errorf("got %v, want %v", got, tt.want)
				}
			})
		})
	}
}

func TestRemovesWhenPortsChange(t *testing.T) {
	port := func(name string, protocol Protocol, endpoint string) PortView {
		return PortView{
			Name: name, Protocol: protocol,
			Cluster: []Endpoint{{AddrPort: netip.MustParseAddrPort(endpoint)}},
		}
	}
	a, b := port("a", TCP, "10.0.0.1:80"), port("b", TCP, "10.0.0.1:81")
	view := func(ports ...PortView) *View {
		return &View{Ports: PerFamily[[]PortView]{IPv4: ports}}
	}
	tests := []struct {
		name          string
		before, after *View
		want          bool
	}{
		{"first view", nil, view(a), false},
		{"ports change places", view(a, b), view(b, a), false},
		{"port added", view(b), view(a, b), false},
		{"port removed", view(a, b), view(b), true},
		{"Service gone", view(a), view(), true},
		{"port without endpoints removed", view(PortView{Name: "c"}), view(), false},
		{"other protocol", view(a), view(port("a", UDP, "10.0.0.1:80")), true},
		{"target port changed", view(a), view(port("a", TCP, "10.0.0.1:8080")), true},
	}
	for _, tt := range tests {
		if got := tt.after.Removes(tt.before); got != tt.want {
			t.Errorf("%s: got %v, want %v", tt.name, got, tt.want)
		}
	}
}

// TestHealthPort: a family that the Service does not have opens no port.
func TestHealthPort(t *testing.T) {
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

package health

import (
	"testing"

	"github.com/sluice-proxy/sluice/service"
)

// TestTheNodeHasOneWord for its state.
func TestTheNodeHasOneWord(t *testing.T) {
	family := func(healthy, bare bool) []Instance {
		return []Instance{{Family: service.IPv4, Healthy: healthy, Bare: bare}}
	}
	for _, tt := range []struct {
		name     string
		state    State
		eligible bool
		findings int
		want     Health
	}{
		{"nothing written", State{Starting: true, Instances: family(true, false)}, true, 1, Starting},
		{"nothing written for long", State{Starting: true, Instances: family(false, false)}, true, 1, Unhealthy},
		{"the Node is not known yet", State{Starting: true, Instances: family(true, false)}, false, 1, Starting},
		{"no findings", State{Instances: family(true, false)}, true, 0, Healthy},
		{"findings", State{Instances: family(true, false)}, true, 2, Degraded},
		{"no rules", State{Instances: family(false, true)}, true, 1, Unhealthy},
		{"standby", State{Standby: true, Instances: family(true, false)}, true, 1, Unhealthy},
		{"a Node that leaves", State{Instances: family(true, false)}, false, 1, Unhealthy},
	} {
		if got := tt.state.Health(tt.eligible, tt.findings); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

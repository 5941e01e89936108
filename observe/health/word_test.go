// SPDX-License-Identifier: Apache-2.0

package health

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-proxy/sluice/observe/state"
	"github.com/sluice-proxy/sluice/service"
)

// TestState_Health: each state of the node has the right health.
func TestState_Health(t *testing.T) {
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

// TestHandler_BareFamilyUnhealthyAtOnce: a family without rules makes /healthz unhealthy immediately, but not /livez,
// because a restart would not restore more.
func TestHandler_BareFamilyUnhealthyAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.node = &service.NodeObject{Name: "n1"}
		f.status(service.IPv4).Bare = time.Now()
		if got := f.get(t, "/healthz?verbose"); got.Code != 503 || !strings.Contains(got.Body.String(), "[unhealthy] rules-missing") {
			t.Errorf("/healthz: %d %s", got.Code, got.Body)
		}
		if got := f.get(t, "/livez"); got.Code != 200 {
			t.Errorf("/livez: %d %s", got.Code, got.Body)
		}
	})
}

// TestHandler_VerboseCountsServices: verbose health contains the numbers of Services, as text and as JSON.
func TestHandler_VerboseCountsServices(t *testing.T) {
	f := newFixture(t)
	f.monitor.config.Services = func() *state.Counts { return &state.Counts{Applied: 4977, Shadowed: 23, WithoutEndpoints: 1000} }
	text := f.get(t, "/healthz?verbose").Body.String()
	if want := "\nServices: 4977 applied, 0 pending, 23 shadowed, 0 held; 1000 without endpoints\n"; !strings.Contains(text, want) {
		t.Errorf("no %q in %s", want, text)
	}
	if text = f.get(t, "/healthz?verbose", "Accept", "application/json").Body.String(); !strings.Contains(text, `"services":{"applied":4977,`) {
		t.Error(text)
	}
	if text = f.get(t, "/healthz").Body.String(); strings.Contains(text, "services") {
		t.Errorf("a probe counts them: %s", text)
	}
}

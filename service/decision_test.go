// SPDX-License-Identifier: Apache-2.0

package service

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// TestDecisions_AgreeWithResolve: for random scenarios, the chosen endpoints are those of the view, and every entry of
// every slice has a decision for each port at which it could serve.
func TestDecisions_AgreeWithResolve(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	seen := map[Reason]int{}
	for range 3000 {
		bytes := make(choices, 600)
		for i := range bytes {
			bytes[i] = byte(r.Uint32())
		}
		s := newScenario(&bytes)
		view := s.resolve()
		for _, family := range Families {
			for i := range view.Ports[family] {
				checkDecisions(t, s, family, i, &view.Ports[family][i], seen)
			}
		}
		if t.Failed() {
			t.Fatalf("spec %+v, facts %+v", s.spec, s.facts)
		}
	}
	for reason := range reasonTexts {
		if seen[Reason(reason)] == 0 {
			t.Errorf("one-sided scenarios: never %q", Reason(reason))
		}
	}
}

func checkDecisions(t *testing.T, s scenario, family Family, i int, want *PortView, seen map[Reason]int) {
	t.Helper()
	got, decisions := Decisions(s.spec, family, i, s.from, s.facts)
	if !equalPorts(got, *want) {
		t.Errorf("Decisions resolves to %+v, Resolve to %+v", got, *want)
	}
	var cluster, local []Endpoint
	for _, d := range decisions {
		if want.UsesCluster() {
			seen[d.ByCluster]++
			if d.ByCluster.Chosen() {
				cluster = append(cluster, Endpoint{AddrPort: d.AddrPort, Local: d.Local})
			}
		}
		if want.UsesLocal() {
			seen[d.ByLocal]++
			if d.ByLocal.Chosen() {
				local = append(local, Endpoint{AddrPort: d.AddrPort, Local: d.Local})
			}
		}
	}
	same := func(a, b Endpoint) bool { return a.AddrPort == b.AddrPort && a.Local == b.Local }
	if !slices.EqualFunc(cluster, want.Cluster, same) || !slices.EqualFunc(local, want.Local, same) {
		t.Errorf("decisions choose %v and %v, Resolve %v and %v", cluster, local, want.Cluster, want.Local)
	}
	if !want.UsesCluster() && !want.UsesLocal() {
		return
	}
	entries := 0
	for _, slice := range s.from {
		if slice.Family != family {
			continue
		}
		ports := 0
		for p := range slice.Ports {
			if slice.Ports[p].serves(&s.spec.Ports[i]) {
				ports++
			}
		}
		entries += max(ports, 1) * len(slice.Endpoints)
	}
	if len(decisions) > entries || len(decisions) < entries && !repeatedPorts(s.from) {
		t.Errorf("%d decisions about %d entries", len(decisions), entries)
	}
}

// repeatedPorts reports whether a slice names the same port twice, which counts once.
func repeatedPorts(from []*Slice) bool {
	return slices.ContainsFunc(from, func(s *Slice) bool {
		for i := range s.Ports {
			if slices.Contains(s.Ports[:i], s.Ports[i]) {
				return true
			}
		}
		return false
	})
}

func TestReason_Text(t *testing.T) {
	names := map[string]bool{}
	for i, r := range reasonTexts {
		if r.name == "" || r.text == "" || names[r.name] {
			t.Errorf("reason %d: %q, %q", i, r.name, r.text)
		}
		names[r.name] = true
	}
	if !ChosenLocalTerminating.Chosen() || NotServing.Chosen() {
		t.Error("Chosen tells the reasons apart in the wrong place")
	}
}

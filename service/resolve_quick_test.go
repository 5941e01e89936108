package service

import (
	"math/rand/v2"
	"testing"
	"time"
)

func TestResolveQuick(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	any, topologies := 0, map[Topology]int{}
	for range 3000 {
		bytes := make(choices, 600)
		for i := range bytes {
			bytes[i] = byte(r.Uint32())
		}
		s := newScenario(&bytes)
		s.check(t, r)
		if t.Failed() {
			t.Fatalf("spec %+v, facts %+v", s.spec, s.facts)
		}
		view := s.resolve()
		for _, family := range Families {
			for _, port := range view.Ports[family] {
				topologies[port.Topology]++
				if port.HasAny {
					any++
				}
			}
		}
	}
	// The property is worth little if the generator misses a case.
	if any < 100 || len(topologies) != 4 {
		t.Errorf("one-sided scenarios: %d ports with endpoints, topologies %v", any, topologies)
	}
}

// TestResolveLeavesInputsAlone: what Resolve is given may be shared.
func TestResolveLeavesInputsAlone(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 300 {
		bytes := make(choices, 600)
		for i := range bytes {
			bytes[i] = byte(r.Uint32())
		}
		again := append(choices(nil), bytes...)
		used, untouched := newScenario(&bytes), newScenario(&again)
		used.resolve()
		if !used.spec.Equal(untouched.spec) || !used.facts.Equal(untouched.facts) {
			t.Fatal("spec or facts changed")
		}
		for i := range used.from {
			if !used.from[i].Equal(untouched.from[i]) {
				t.Fatalf("slice %d changed", i)
			}
		}
	}
}

package main

import (
	"math"
	"testing"
	"time"
)

func TestGrowthIsTheExponent(t *testing.T) {
	var results []result
	for _, services := range []int{1000, 10000, 100000} {
		results = append(results,
			result{Mode: nftables, Cold: &coldStart{Services: services, Endpoints: 10,
				Programmed: time.Duration(services) * time.Millisecond,
				Memory:     memory{Resident: math.Sqrt(float64(services))}}},
			result{Mode: nftables, Reactions: []reaction{{Services: services, Endpoints: 10, Kind: "k", Pace: "p", P50: time.Millisecond}}})
	}
	want := map[string]float64{
		"nftables: start × 10, programmed": 1, "nftables: start × 10, resident": 0.5, "nftables: k, p × 10, p50": 0,
	}
	for _, g := range growths(results) {
		e, ok := want[g.What]
		if !ok || math.Abs(g.Exponent-e) > 1e-9 || g.From != 1000 || g.To != 100000 {
			t.Errorf("%+v, want %v", g, e)
		}
		delete(want, g.What)
	}
	if len(want) > 0 {
		t.Errorf("no growth of %v", want)
	}
	if got := growths(results[:2]); len(got) > 0 {
		t.Errorf("growth from one size: %v", got)
	}
}

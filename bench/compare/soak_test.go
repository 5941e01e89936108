package main

import (
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/bench/result"
)

// What grows is found: from rest to rest, and along the line through the samples.
func TestJudgeFindsGrowth(t *testing.T) {
	rest := result.Sample{Goroutines: 57, Descriptors: 21, Chains: 100, Rules: 300, Sets: 120, Elements: 9000, HeapMiB: 80, Conntrack: 5000}
	sampled := func(perHour float64) (samples []result.Sample) {
		for seconds := 0.0; seconds <= 3600; seconds += 10 {
			// A saw tooth, as the collector makes it.
			mib := 150 + perHour*seconds/3600 + float64(int(seconds)%100)/10
			samples = append(samples, result.Sample{Seconds: seconds, ResidentMiB: mib, ProportionMiB: mib})
		}
		return samples
	}
	for name, c := range map[string]struct {
		change func(*result.Soak, *result.Sample)
		missed string
	}{
		"nothing":           {func(*result.Soak, *result.Sample) {}, ""},
		"a goroutine":       {func(_ *result.Soak, v *result.Sample) { v.Goroutines++ }, "goroutines"},
		"one fewer":         {func(_ *result.Soak, v *result.Sample) { v.Goroutines-- }, "goroutines"},
		"a descriptor":      {func(_ *result.Soak, v *result.Sample) { v.Descriptors++ }, "descriptors"},
		"an element":        {func(_ *result.Soak, v *result.Sample) { v.Elements++ }, "elements"},
		"a tenth of a heap": {func(_ *result.Soak, v *result.Sample) { v.HeapMiB = 88 }, "heap, MiB"},
		"an exchange":       {func(o *result.Soak, _ *result.Sample) { o.Lost = 1 }, "lost"},
		"memory":            {func(o *result.Soak, _ *result.Sample) { o.Samples = sampled(12) }, "resident, MiB"},
		"connections":       {func(_ *result.Soak, v *result.Sample) { v.Conntrack = 6000 }, "conntrack entries"},
	} {
		last := rest
		s := &soak{duration: time.Hour, out: &result.Soak{Attempted: 1000, Samples: sampled(0)}}
		c.change(s.out, &last)
		s.out.Quiet = []result.Sample{rest, last}
		s.judge()
		missed := ""
		for _, check := range s.out.Checks {
			if !check.OK && missed == "" {
				missed = check.What
			}
		}
		if missed != c.missed || len(s.out.Checks) != 11 {
			t.Errorf("%s: missed %q of %d checks, want %q", name, missed, len(s.out.Checks), c.missed)
		}
	}
}

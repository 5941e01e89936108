// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"
	"time"
)

// TestSoak_JudgeFindsGrowth: the soak test reports each resource that grows, from one pause to the next or along the
// line through the samples.
func TestSoak_JudgeFindsGrowth(t *testing.T) {
	rest := sample{goroutines: 57, descriptors: 21, chains: 100, rules: 300, sets: 120, elements: 9000, heapMiB: 80, tracked: 5000}
	sampled := func(perHour float64) (samples []sample) {
		for seconds := 0.0; seconds <= 3600; seconds += 10 {
			// A saw tooth, as the collector makes it.
			samples = append(samples, sample{seconds: seconds, residentMiB: 150 + perHour*seconds/3600 + float64(int(seconds)%100)/10})
		}
		return samples
	}
	for name, c := range map[string]struct {
		change func(*soak, *sample, *connections)
		missed string
	}{
		"nothing":           {func(*soak, *sample, *connections) {}, ""},
		"a goroutine":       {func(_ *soak, v *sample, _ *connections) { v.goroutines++ }, "goroutines"},
		"one fewer":         {func(_ *soak, v *sample, _ *connections) { v.goroutines-- }, "goroutines"},
		"a descriptor":      {func(_ *soak, v *sample, _ *connections) { v.descriptors++ }, "descriptors"},
		"an element":        {func(_ *soak, v *sample, _ *connections) { v.elements++ }, "elements"},
		"a tenth of a heap": {func(_ *soak, v *sample, _ *connections) { v.heapMiB = 88 }, "heap, MiB"},
		"an exchange":       {func(_ *soak, _ *sample, c *connections) { c.lost = 1 }, lost},
		"memory":            {func(s *soak, _ *sample, _ *connections) { s.samples = sampled(12) }, "resident, MiB"},
		"connections":       {func(_ *soak, v *sample, _ *connections) { v.tracked = 6000 }, "conntrack entries"},
	} {
		last, exchanged := rest, connections{attempted: 1000}
		s := &soak{run: &run{options: options{soak: time.Hour}}, samples: sampled(0)}
		c.change(s, &last, &exchanged)
		s.rests = []sample{rest, last}
		checks, missed := s.judge(exchanged), ""
		for _, check := range checks {
			if !check.ok && missed == "" {
				missed = check.what
			}
		}
		if missed != c.missed || len(checks) != 10 {
			t.Errorf("%s: missed %q of %d checks, want %q", name, missed, len(checks), c.missed)
		}
	}
}

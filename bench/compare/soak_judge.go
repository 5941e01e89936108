// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/sluice-proxy/sluice/bench/rig"
)

// warmSeconds is when the process has grown to what its work takes.
const warmSeconds = 300

// heap and tracked are the measurements that have their own rules.
const heap, tracked = "heap, MiB", "conntrack entries"

// restFigures are the numbers of a sample that must not grow from rest to rest, by more than a share.
var restFigures = []struct {
	what    string
	of      func(sample) float64
	allowed float64
}{
	{"goroutines", func(v sample) float64 { return float64(v.goroutines) }, 0},
	{"descriptors", func(v sample) float64 { return float64(v.descriptors) }, 0},
	{"chains", func(v sample) float64 { return float64(v.chains) }, 0},
	{"rules", func(v sample) float64 { return float64(v.rules) }, 0},
	{"sets", func(v sample) float64 { return float64(v.sets) }, 0},
	{"elements", func(v sample) float64 { return float64(v.elements) }, 0},
	{heap, func(v sample) float64 { return v.heapMiB }, 0.05},
	// The steady traffic's, which depend a little on how busy the machine is.
	{tracked, func(v sample) float64 { return float64(v.tracked) }, 0.1},
}

// check is one number, and whether it stayed what it was.
type check struct {
	what, first, last, allowed string
	ok                         bool
}

func table(checks []check) rig.Table {
	t := rig.Table{Head: []string{"", "after the first minute", "at the end", "allowed", ""}}
	for _, c := range checks {
		t.Add(c.what, c.first, c.last, c.allowed, map[bool]string{true: "ok", false: "**missed**"}[c.ok])
	}
	return t
}

// judge compares the quiet moment after the first minute with the one at the end, and looks for a
// trend in between.
func (s *soak) judge(c connections) []check {
	checks := []check{{lost, "0", fmt.Sprintf("%d of %d", c.lost, c.attempted), "none", c.lost == 0 && c.attempted > 0}}
	if len(s.rests) < 2 {
		return checks
	}
	checks = append(checks, s.atRest(s.rests[0], s.rests[len(s.rests)-1])...)
	if c, enough := trend(s.samples); enough {
		checks = append(checks, c)
	}
	return checks
}

// atRest compares two quiet moments.
func (s *soak) atRest(first, last sample) (checks []check) {
	for _, f := range restFigures {
		if f.what == tracked && !s.restsLong() { // the kernel has not forgotten the work before
			continue
		}
		a, b := f.of(first), f.of(last)
		allowed, ok := fmt.Sprintf("%+.0f %% at rest", 100*f.allowed), b <= a*(1+f.allowed)
		switch {
		case f.what == heap:
			allowed, ok = allowed+", or 1 MiB", ok || b <= a+1
		case f.allowed == 0 && s.restsLong():
			allowed, ok = "equal at rest", a == b
		}
		checks = append(checks, check{f.what, number(a), number(b), allowed, ok})
	}
	return checks
}

// grown reports whether a quiet moment has more than the first one.
func (s *soak) grown(last sample) bool {
	return slices.ContainsFunc(s.atRest(s.rests[0], last), func(c check) bool { return !c.ok })
}

// trend fits a line through the resident sizes after the first minutes, and compares its two ends. Memory is
// a saw tooth, so the growth has an error; twice that is not growth.
func trend(samples []sample) (check, bool) {
	const enough, allowed = 30, 0.05
	samples = slices.DeleteFunc(slices.Clone(samples), func(v sample) bool { return v.seconds < warmSeconds })
	n := float64(len(samples))
	if n < enough {
		return check{}, false
	}
	mx := rig.Sum(samples, func(v sample) float64 { return v.seconds }) / n
	my := rig.Sum(samples, func(v sample) float64 { return v.residentMiB }) / n
	var sxx, sxy, residual float64
	for _, v := range samples {
		sxx, sxy = sxx+(v.seconds-mx)*(v.seconds-mx), sxy+(v.seconds-mx)*(v.residentMiB-my)
	}
	at := func(v sample) float64 { return my + sxy/sxx*(v.seconds-mx) }
	for _, v := range samples {
		residual += (v.residentMiB - at(v)) * (v.residentMiB - at(v))
	}
	from, to := samples[0], samples[len(samples)-1]
	first, last := at(from), at(to)
	deviation := math.Sqrt(residual/(n-2)/sxx) * (to.seconds - from.seconds)
	return check{
		"resident, MiB", number(first), fmt.Sprintf("%s ± %.1f", number(last), deviation),
		fmt.Sprintf("%+.0f %% along the line of regression", 100*allowed), last-first-2*deviation <= allowed*first,
	}, true
}

func number(v float64) string {
	if v == float64(int(v)) {
		return fmt.Sprint(int(v))
	}
	return fmt.Sprintf("%.1f", v)
}

// errGrown says that a check has failed.
var errGrown = errors.New("not everything is as it was after the first minute")

package main

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/sluice-proxy/sluice/bench/result"
	"github.com/sluice-proxy/sluice/bench/rig"
)

// warmSeconds is when the process has grown to what its work takes.
const warmSeconds = 300

// heapMiB and tracked are the measurements that have their own rules.
const heapMiB, tracked = "heap, MiB", "conntrack entries"

// figure is a number of a sample that must not grow.
type figure struct {
	what string
	of   func(result.Sample) float64
	// allowed is the growth from rest to rest, trend that of the line through the samples; negative if that is not
	// judged.
	allowed, trend float64
}

var figures = []figure{
	{"goroutines", func(v result.Sample) float64 { return float64(v.Goroutines) }, 0, -1},
	{"descriptors", func(v result.Sample) float64 { return float64(v.Descriptors) }, 0, -1},
	{"chains", func(v result.Sample) float64 { return float64(v.Chains) }, 0, -1},
	{"rules", func(v result.Sample) float64 { return float64(v.Rules) }, 0, -1},
	{"sets", func(v result.Sample) float64 { return float64(v.Sets) }, 0, -1},
	{"elements", func(v result.Sample) float64 { return float64(v.Elements) }, 0, -1},
	{heapMiB, func(v result.Sample) float64 { return v.HeapMiB }, 0.05, -1},
	{"resident, MiB", func(v result.Sample) float64 { return v.ResidentMiB }, -1, 0.05},
	{"proportional, MiB", func(v result.Sample) float64 { return v.ProportionMiB }, -1, 0.05},
	// The steady traffic's, which depend a little on how busy the machine is.
	{tracked, func(v result.Sample) float64 { return float64(v.Conntrack) }, 0.1, -1},
}

// judge compares the quiet moment after the first minute with the one at the end, and looks for a
// trend in between.
func (s *soak) judge() {
	o := s.out
	o.Checks = append(o.Checks, result.Check{What: "lost", First: "0", Last: fmt.Sprintf("%d of %d", o.Lost, o.Attempted), Allowed: "none",
		OK: o.Lost == 0 && o.Attempted > 0})
	if len(o.Quiet) < 2 {
		return
	}
	o.Checks = append(o.Checks, s.atRest(o.Quiet[0], o.Quiet[len(o.Quiet)-1])...)
	for _, f := range figures {
		if f.trend < 0 {
			continue
		}
		if c, enough := trend(o.Samples, f.what, f.of, f.trend); enough {
			o.Checks = append(o.Checks, c)
		}
	}
}

// atRest compares two quiet moments.
func (s *soak) atRest(first, last result.Sample) (checks []result.Check) {
	for _, f := range figures {
		if f.allowed < 0 || f.what == tracked && !s.restsLong() { // the kernel has not forgotten the work before
			continue
		}
		a, b := f.of(first), f.of(last)
		allowed, ok := fmt.Sprintf("%+.0f %% at rest", 100*f.allowed), b <= a*(1+f.allowed)
		switch {
		case f.what == heapMiB:
			allowed, ok = allowed+", or 1 MiB", ok || b <= a+1
		case f.allowed == 0 && s.restsLong():
			allowed, ok = "equal at rest", a == b
		}
		checks = append(checks, result.Check{What: f.what, First: number(a), Last: number(b), Allowed: allowed, OK: ok})
	}
	return checks
}

// grown reports whether a quiet moment has more than the first one.
func (s *soak) grown(last result.Sample) bool {
	return slices.ContainsFunc(s.atRest(s.out.Quiet[0], last), func(c result.Check) bool { return !c.OK })
}

// trend fits a line through the samples after the first minutes, and compares its two ends. Memory is
// a saw tooth, so the growth has an error; twice that is not growth.
func trend(samples []result.Sample, what string, of func(result.Sample) float64, allowed float64) (result.Check, bool) {
	const enough = 30
	var xs, ys []float64
	for _, v := range samples {
		if v.Seconds >= warmSeconds {
			xs, ys = append(xs, v.Seconds), append(ys, of(v))
		}
	}
	n := float64(len(xs))
	if n < enough {
		return result.Check{}, false
	}
	same := func(v float64) float64 { return v }
	mx, my := rig.Sum(xs, same)/n, rig.Sum(ys, same)/n
	var sxx, sxy, residual float64
	for i := range xs {
		sxx, sxy = sxx+(xs[i]-mx)*(xs[i]-mx), sxy+(xs[i]-mx)*(ys[i]-my)
	}
	slope := sxy / sxx
	at := func(x float64) float64 { return my + slope*(x-mx) }
	for i := range xs {
		residual += (ys[i] - at(xs[i])) * (ys[i] - at(xs[i]))
	}
	first, last := at(xs[0]), at(xs[len(xs)-1])
	deviation := math.Sqrt(residual/(n-2)/sxx) * (xs[len(xs)-1] - xs[0])
	return result.Check{
		What: what, First: number(first), Last: fmt.Sprintf("%s ± %.1f", number(last), deviation),
		Allowed: fmt.Sprintf("%+.0f %% along the line of regression", 100*allowed), OK: last-first-2*deviation <= allowed*first,
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

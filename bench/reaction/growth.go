package main

import (
	"fmt"
	"math"
	"slices"

	"github.com/sluice-proxy/sluice/bench/rig"
)

// growth says how a measure grows with the number of Services: as Services^Exponent.
type growth struct {
	What     string
	From, To int
	Exponent float64
	// Expected is 1 for a total, and 0 for a change of one Service.
	Expected int
}

// growths returns the growth of everything that was measured at several sizes.
func growths(results []result) []growth {
	var all []series
	for _, r := range results {
		if c := r.Cold; c != nil {
			name := fmt.Sprintf("%s: start × %d, ", r.Mode, c.Endpoints)
			add := func(what string, value float64) { all = addPoint(all, name+what, 1, c.Services, value) }
			add("rendered", c.Rendered.Seconds())
			add("programmed", c.Programmed.Seconds())
			add("processor time", c.Processor.Seconds())
			add("peak", c.Memory.Peak)
			add("resident", c.Memory.Resident)
			add("heap", c.Memory.LeastHeap)
			add("objects", float64(c.Memory.HeapObjects))
		}
		for _, f := range r.Reactions {
			name := fmt.Sprintf("%s: %s, %s × %d, ", r.Mode, f.Kind, f.Pace, f.Endpoints)
			add := func(what string, value float64) { all = addPoint(all, name+what, 0, f.Services, value) }
			add("p50", f.P50.Seconds())
			add("p99", f.P99.Seconds())
			add("write p50", f.Write.Seconds())
			add("processor time", f.Processor.Seconds())
			add("objects", f.Objects)
			add("bytes", f.Bytes)
		}
	}
	var found []growth
	for _, s := range all {
		if e, ok := s.exponent(); ok {
			found = append(found, growth{s.what, slices.Min(s.sizes), slices.Max(s.sizes), e, s.expected})
		}
	}
	return found
}

// series has the values of one measure.
type series struct {
	what     string
	expected int
	sizes    []int
	values   []float64
}

func addPoint(all []series, what string, expected, size int, value float64) []series {
	at := slices.IndexFunc(all, func(s series) bool { return s.what == what })
	if at < 0 {
		at, all = len(all), append(all, series{what: what, expected: expected})
	}
	all[at].sizes, all[at].values = append(all[at].sizes, size), append(all[at].values, value)
	return all
}

// exponent returns the slope of the line through the logarithms that has the least squares. It
// reports false if there are not two sizes, or a value has no logarithm.
func (s series) exponent() (float64, bool) {
	n := float64(len(s.sizes))
	var x, y, xx, xy float64
	for i, size := range s.sizes {
		if s.values[i] <= 0 {
			return 0, false
		}
		u, v := math.Log(float64(size)), math.Log(s.values[i])
		x, y, xx, xy = x+u, y+v, xx+u*u, xy+u*v
	}
	if slices.Min(s.sizes) == slices.Max(s.sizes) {
		return 0, false
	}
	return (n*xy - x*y) / (n*xx - x*x), true
}

func grown(results []result) rig.Table {
	t := table("growth with the number of Services; from; to; exponent; wanted")
	for _, g := range growths(results) {
		row(&t, g.What, g.From, g.To, g.Exponent, g.Expected)
	}
	return t
}

package main

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/sluice-proxy/sluice/bench/result"
)

// soaks shows the long runs, the largest first.
func (p *page) soaks(sources []source) error {
	type run struct {
		result.Soak
		source
	}
	var runs []run
	for _, s := range sources {
		in, err := decode[result.Soak](s)
		if err != nil {
			return err
		}
		if len(in.Samples) == 0 {
			return fmt.Errorf("%s: no samples", s.file)
		}
		runs = append(runs, run{in, s})
	}
	slices.SortStableFunc(runs, func(a, b run) int {
		return cmp.Or(-cmp.Compare(a.Services, b.Services), cmp.Compare(a.file, b.file))
	})
	for i, r := range runs {
		intro := fmt.Sprintf("%s Services with %s endpoints, %.0f minutes, %.0f changes of endpoints per second. The API server was "+
			"started again %d times, the configuration changed %d times. %s exchanges of the clients, %d lost.",
			grouped(r.Services), grouped(r.Endpoints), r.Seconds/60, r.ChangesPerSecond, r.Restarts, r.HandOvers, grouped(r.Attempted), r.Lost)
		if r.Incomplete != "" {
			intro += " It ended early: " + r.Incomplete + "."
		}
		name := fmt.Sprintf("soak-%d-%d", r.Services, i)
		p.Soaks = append(p.Soaks, section{
			Title: fmt.Sprintf("%s Services, %.0f minutes", grouped(r.Services), r.Seconds/60), Command: r.Command, Machine: r.Machine,
			Intro: intro, Tables: []result.Table{r.Table()},
			Pictures: []picture{
				p.draw(name+"-memory", "Memory of one process", soakPlot("Memory of one process", "MiB", false, r.Samples, []series{
					{"resident", result.Sluice, false, func(v result.Sample) float64 { return v.ResidentMiB }},
					{"proportional", "blue", true, func(v result.Sample) float64 { return v.ProportionMiB }},
					{"heap in use", "purple", false, func(v result.Sample) float64 { return v.HeapMiB }},
				})),
				p.draw(name+"-counts", "What it holds", soakPlot("What it holds", "count", true, r.Samples, []series{
					{"elements of sets", result.Sluice, false, func(v result.Sample) float64 { return float64(v.Elements) }},
					{"connections tracked", result.KubeProxy, false, func(v result.Sample) float64 { return float64(v.Conntrack) }},
					{"rules", "gray", false, func(v result.Sample) float64 { return float64(v.Rules) }},
					{"chains", "gray", true, func(v result.Sample) float64 { return float64(v.Chains) }},
					{"goroutines", "blue", false, func(v result.Sample) float64 { return float64(v.Goroutines) }},
					{"descriptors", "purple", false, func(v result.Sample) float64 { return float64(v.Descriptors) }},
				})),
			},
		})
	}
	return nil
}

// series is one figure of all samples.
type series struct {
	name, style string
	dashed      bool
	of          func(result.Sample) float64
}

// soakPlot draws figures over time. What a sample did not count is left out.
func soakPlot(title, label string, log bool, samples []result.Sample, all []series) string {
	drawn := plot{title: title, xLabel: "minutes", yLabel: label, yLog: log}
	for _, s := range all {
		l := line{name: s.name, style: s.style, dashed: s.dashed}
		for _, v := range samples {
			if value := s.of(v); value > 0 {
				l.points = append(l.points, point{v.Seconds / 60, value})
			}
		}
		drawn.lines = append(drawn.lines, l)
	}
	return drawn.svg()
}

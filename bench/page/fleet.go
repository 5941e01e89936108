package main

import (
	"fmt"

	"github.com/sluice-proxy/sluice/bench/result"
	"github.com/sluice-proxy/sluice/bench/rig"
)

// fleetRows are the rows of the table about fleets. Values that are linear in the number of nodes are extrapolated.
var fleetRows = []struct {
	name, step, what string
	linear           bool
}{
	{"starts one after the other: sent", result.FleetApart, result.Sent, true},
	{"starts one after the other: CPU time", result.FleetApart, result.ServerTime, true},
	{"starts one after the other: memory, peak", result.FleetApart, result.ServerPeak, false},
	{"starts at the same time: sent", result.FleetStart, result.Sent, true},
	{"starts at the same time: CPU time", result.FleetStart, result.ServerTime, true},
	{"starts at the same time: memory, peak", result.FleetStart, result.ServerPeak, false},
	{"starts at the same time: rejected requests", result.FleetStart, result.Rejected, false},
	{"one replaced endpoint: sent", result.FleetChanges, result.SentEach, true},
	{"one replaced endpoint: CPU time", result.FleetChanges, result.ServerTimeEach, true},
	{"one replaced endpoint: lists", result.FleetChanges, result.Requests, false},
	{"no changes: sent per minute", result.FleetRest, result.SentPerMinute, true},
	{"no changes: CPU time per minute", result.FleetRest, result.ServerPerMinute, true},
	{"restart of the API server: sent", result.FleetRestart, result.Sent, true},
	{"restart of the API server: CPU time", result.FleetRestart, result.ServerTime, true},
	{"restart of the API server: memory, peak", result.FleetRestart, result.ServerPeak, false},
	{"restart of the API server: rejected requests", result.FleetRestart, result.Rejected, false},
	{"restart of the API server: until all nodes have a new change", result.FleetRestart, result.UntilAll, false},
}

// fleetSizes are the numbers of nodes to extrapolate to.
var fleetSizes = []int{1000, 5000}

// Fleet returns the last record of a fleet, or nil.
func (p *page) Fleet() *result.Fleet {
	if len(p.Fleets) == 0 {
		return nil
	}
	return p.Fleets[len(p.Fleets)-1]
}

// Grouped is a number for the template.
func (p *page) Grouped(n int) string { return grouped(n) }

// Load has a row for each value, and a column for each number of nodes. Extrapolated values are in italics.
func (p *page) Load() rig.Table {
	f := p.Fleet()
	t := rig.Table{Head: []string{"API server"}}
	sizes := f.Sizes()
	for _, size := range sizes {
		t.Head = append(t.Head, grouped(size)+" nodes")
	}
	for _, size := range fleetSizes {
		t.Head = append(t.Head, fmt.Sprintf("*%s nodes*", grouped(size)))
	}
	for _, r := range fleetRows {
		row, values := []string{r.name}, f.Of(r.step, r.what)
		for _, size := range sizes {
			row = append(row, textOf(values[size]))
		}
		for _, size := range fleetSizes {
			extended, ok := f.Extrapolate(r.step, r.what, size)
			if !ok || !r.linear {
				row = append(row, "")
				continue
			}
			row = append(row, "*"+textOf(extended)+"*")
		}
		t.Add(row...)
	}
	return t
}

// textOf is a figure in the larger unit, and nothing for one that was not measured.
func textOf(f result.FleetFigure) string {
	switch {
	case f.What == "":
		return ""
	case f.Unit == "KiB" && f.Value >= 1000:
		f.Unit, f.Value = "MiB", f.Value/1024
	}
	if f.Unit == "MiB" && f.Value >= 1000 {
		f.Unit, f.Value = "GiB", f.Value/1024
	}
	return f.Text()
}

package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-proxy/sluice/bench/rig"
)

// result is the result of one measurement.
type result struct {
	Name string
	Mode string
	// Load is the machine's load average when it began.
	Load      string
	Reactions []reaction `json:",omitempty"`
	Resync    *idleWork  `json:",omitempty"`
	Cold      *coldStart `json:",omitempty"`
	Restart   *restarted `json:",omitempty"`
	Churn     *churn     `json:",omitempty"`
}

// verdict compares a figure with a target.
type verdict struct {
	// Target is its number in the list of targets, for example "V2".
	Target string
	What   string
	Figure string
	Want   string
	Met    bool
}

// The targets, for a machine with two cores.
const (
	wantP50, wantP99 = 300 * time.Microsecond, 3 * time.Millisecond
	wantGrowth       = 1.5
	wantResidentMiB  = 200
	wantServiceKiB   = 16
)

// wantColdStart holds targets by the measurement's name.
var wantColdStart = map[string]time.Duration{
	"cold-10000x10": 3 * time.Second,
	"cold-44000x1":  8 * time.Second,
	"cold-5000x50":  6 * time.Second,
}

// judge compares the results of mode nftables with the targets, as far as they were measured.
func judge(results []result) []verdict {
	results = slices.DeleteFunc(slices.Clone(results), func(r result) bool { return r.Mode == iptables })
	var all []verdict
	all = append(all, judgeReactions(results)...)
	for _, r := range results {
		if want, ok := wantColdStart[r.Name]; ok && r.Cold != nil {
			all = append(all, atMost("V5", r.Name+" programmed", r.Cold.Programmed, want))
		}
	}
	all = append(all, judgeMemory(results)...)
	all = append(all, judgeHot(results)...)
	for _, r := range results {
		if w := r.Resync; w != nil {
			all = append(all, verdict{
				"V11", fmt.Sprintf("%d events without a change", w.Events),
				fmt.Sprintf("%d rendered, %d batches", w.Rendered, w.Batches), "0 rendered, 0 batches", w.Rendered == 0 && w.Batches == 0,
			})
		}
	}
	return all
}

// judgeReactions looks at the replacement of an endpoint: among 50,000 Services, and there compared
// with 1,000.
func judgeReactions(results []result) []verdict {
	var all []verdict
	few := map[string]time.Duration{}
	for _, found := range replacements(results) {
		if found.Services == 1000 {
			few[found.Pace] = found.P50
		}
	}
	for _, found := range replacements(results) {
		if found.Services != 50000 {
			continue
		}
		where := fmt.Sprintf("N = 50,000, %s, %s", found.Kind, found.Pace)
		all = append(all, atMost("V2", where+", p50", found.P50, wantP50), atMost("V2", where+", p99", found.P99, wantP99))
		if base, ok := few[found.Pace]; ok {
			growth := float64(found.P50) / float64(base)
			all = append(all, verdict{"V3", "p50 at 50,000 over 1,000, " + found.Pace,
				fmt.Sprintf("%.2f", growth), fmt.Sprintf("≤ %.1f", wantGrowth), growth <= wantGrowth})
		}
	}
	return all
}

func replacements(results []result) []reaction {
	var all []reaction
	for _, r := range results {
		for _, found := range r.Reactions {
			if found.Kind == kinds[0].name {
				all = append(all, found)
			}
		}
	}
	return all
}

// judgeMemory looks at the resident size, and at what one Service costs besides its endpoints: two
// cold starts with different numbers of endpoints tell what an endpoint costs.
func judgeMemory(results []result) []verdict {
	var all []verdict
	few, many := coldStartOf(results, "cold-10000x1"), coldStartOf(results, "cold-10000x10")
	if many != nil {
		m := many.Memory
		for _, part := range []struct {
			what  string
			found float64
		}{{"resident", m.Resident}, {"resident at the peak", m.Peak}} {
			all = append(all, verdict{"V6", "N = 10,000, " + part.what, fmt.Sprintf("%.0f MiB", part.found),
				fmt.Sprintf("≤ %d MiB", wantResidentMiB), part.found <= wantResidentMiB})
		}
	}
	if few != nil && many != nil {
		perEndpoint := (many.Memory.PerServiceKiB - few.Memory.PerServiceKiB) / float64(many.Endpoints-few.Endpoints)
		beyond := few.Memory.PerServiceKiB - perEndpoint*float64(few.Endpoints)
		all = append(all, verdict{"V6", fmt.Sprintf("an idle Service beyond its endpoints (%.2f KiB each)", perEndpoint),
			fmt.Sprintf("%.1f KiB", beyond), fmt.Sprintf("≤ %d KiB", wantServiceKiB), beyond <= wantServiceKiB})
	}
	return all
}

func coldStartOf(results []result, name string) *coldStart {
	for _, r := range results {
		if r.Name == name {
			return r.Cold
		}
	}
	return nil
}

// judgeHot compares the objects that one change writes for different numbers of endpoints. A fuller
// table has to move more of them: with fifty times the endpoints, half as many objects again are
// allowed.
func judgeHot(results []result) []verdict {
	few, many := hotOf(results, "hot-100"), hotOf(results, "hot-5000")
	if few == nil || many == nil {
		return nil
	}
	return []verdict{{
		"V10", "one endpoint of 5,000 replaced",
		fmt.Sprintf("%.2f objects", many.Objects), fmt.Sprintf("≤ 1.5 × those of 100 (%.2f)", few.Objects), many.Objects <= 1.5*few.Objects,
	}}
}

func hotOf(results []result, name string) *reaction {
	for _, r := range results {
		if r.Name == name && len(r.Reactions) == 1 {
			return &r.Reactions[0]
		}
	}
	return nil
}

func atMost(target, what string, found, want time.Duration) verdict {
	return verdict{target, what, rig.Round(found), "≤ " + want.String(), found <= want}
}

// show prints tables for people.
func show(out io.Writer, results []result) error {
	var errs []error
	for _, t := range []rig.Table{
		reactions(results), churns(results), starts(results), restarts(results), memories(results), resyncs(results),
		grown(results), verdicts(results), loads(results),
	} {
		errs = append(errs, t.Print(out))
	}
	return errors.Join(errs...)
}

// table makes a table out of a line of column names.
func table(names string) rig.Table { return rig.Table{Head: strings.Split(names, "; ")} }

// row adds values to a table.
func row(t *rig.Table, values ...any) {
	cells := make([]string, len(values))
	for i, v := range values {
		switch v := v.(type) {
		case time.Duration:
			cells[i] = rig.Round(v)
		case float64:
			cells[i] = strconv.FormatFloat(v, 'f', 2, 64)
		default:
			cells[i] = fmt.Sprint(v)
		}
	}
	t.Add(cells...)
}

func reactions(results []result) rig.Table {
	t := table("Services; endpoints; change; pace; p50; p99; max; write p50; objects; lines; bytes; batches; CPU time; " +
		"resident, MiB; audits")
	for _, r := range results {
		for _, f := range r.Reactions {
			audits := "-"
			if f.Audits > 0 {
				audits = fmt.Sprintf("%d ≤ %s", f.Audits, rig.Round(f.AuditTook))
			}
			row(&t, f.Services, f.Endpoints, f.Kind, f.Pace, f.P50, f.P99, f.Max, f.Write, f.Objects, f.Lines,
				int(f.Bytes), f.Batches, f.Processor, int(f.Resident), audits)
		}
	}
	return t
}

func starts(results []result) rig.Table {
	t := table("cold start; reduced; rendered; API answers; DNS answers; programmed; of that writing; generating, left out; CPU time")
	for _, r := range results {
		if c := r.Cold; c != nil {
			row(&t, c.size(), c.Listed, c.Rendered, c.Answers[firsts[0].key.String()], c.Answers[firsts[1].key.String()],
				c.Programmed, c.Writing, c.Generating, c.Processor)
		}
	}
	return t
}

func memories(results []result) rig.Table {
	t := table("memory in MiB; peak; resident; heap; stacks; resident, all returned; heap; stacks; KiB per Service; objects")
	for _, r := range results {
		if c := r.Cold; c != nil {
			m := c.Memory
			row(&t, c.size(), int(m.Peak), int(m.Resident), int(m.Heap), int(m.Stacks), int(m.Least),
				int(m.LeastHeap), int(m.LeastStacks), m.PerServiceKiB, m.HeapObjects)
		}
	}
	return t
}

func resyncs(results []result) rig.Table {
	t := table("Services; events without a change; time of each; rendered; batches; objects")
	for _, r := range results {
		if w := r.Resync; w != nil {
			row(&t, w.Services, w.Events, w.PerEvent, w.Rendered, w.Batches, w.Objects)
		}
	}
	return t
}

func verdicts(results []result) rig.Table {
	t := table("target; measured; wanted; ")
	for _, v := range judge(results) {
		row(&t, v.Target+" "+v.What, v.Figure, v.Want, map[bool]string{true: "ok", false: "MISSED"}[v.Met])
	}
	return t
}

func loads(results []result) rig.Table {
	t := table("measurement; mode; load average when it began")
	for _, r := range results {
		row(&t, r.Name, r.Mode, r.Load)
	}
	return t
}

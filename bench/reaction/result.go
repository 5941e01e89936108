package main

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"
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
	return verdict{target, what, round(found), "≤ " + want.String(), found <= want}
}

// round returns a duration with three digits or so.
func round(d time.Duration) string {
	switch {
	case d >= time.Second:
		return d.Round(10 * time.Millisecond).String()
	case d >= 10*time.Millisecond:
		return d.Round(100 * time.Microsecond).String()
	default:
		return d.Round(time.Microsecond).String()
	}
}

// table prints rows in columns. It keeps the first error.
type table struct {
	*tabwriter.Writer
	err error
}

func newTable(out io.Writer) *table {
	return &table{Writer: tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)}
}

func (t *table) row(format string, args ...any) {
	if _, err := fmt.Fprintf(t, format+"\t\n", args...); t.err == nil {
		t.err = err
	}
}

// end prints the rows, and an empty line.
func (t *table) end(out io.Writer) error {
	if err := t.Flush(); t.err == nil {
		t.err = err
	}
	if _, err := fmt.Fprintln(out); t.err == nil {
		t.err = err
	}
	return t.err
}

// show prints tables for people.
func show(out io.Writer, results []result) error {
	for _, part := range []func(io.Writer, []result) error{showReactions, showChurn, showColdStarts, showRestarts, showMemory, showResyncs, showGrowth, showVerdicts, showLoad} {
		if err := part(out, results); err != nil {
			return err
		}
	}
	return nil
}

func showReactions(out io.Writer, results []result) error {
	t := newTable(out)
	count := 0
	t.row("Services\tendpoints\tchange\tpace\tp50\tp99\tmax\twrite p50\tobjects\tlines\tbytes\tbatches\tprocessor\tresident\taudits")
	for _, r := range results {
		for _, f := range r.Reactions {
			audits := "-"
			if f.Audits > 0 {
				audits = fmt.Sprintf("%d ≤ %s", f.Audits, round(f.AuditTook))
			}
			t.row("%d\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%.2f\t%.2f\t%.0f\t%d\t%s\t%.0f MiB\t%s", f.Services, f.Endpoints, f.Kind, f.Pace,
				round(f.P50), round(f.P99), round(f.Max), round(f.Write), f.Objects, f.Lines, f.Bytes, f.Batches, round(f.Processor), f.Resident, audits)
			count++
		}
	}
	if count == 0 {
		return nil
	}
	return t.end(out)
}

// coldStarts returns the cold starts among the results.
func coldStarts(results []result) []*coldStart {
	var all []*coldStart
	for _, r := range results {
		if r.Cold != nil {
			all = append(all, r.Cold)
		}
	}
	return all
}

func showColdStarts(out io.Writer, results []result) error {
	starts := coldStarts(results)
	if len(starts) == 0 {
		return nil
	}
	t := newTable(out)
	t.row("cold start\treduced\trendered\tAPI answers\tDNS answers\tprogrammed\tof that writing\tgenerating, left out\tprocessor time")
	for _, c := range starts {
		t.row("%d × %d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s", c.Services, c.Endpoints, round(c.Listed), round(c.Rendered),
			round(c.Answers[firsts[0].key.String()]), round(c.Answers[firsts[1].key.String()]),
			round(c.Programmed), round(c.Writing), round(c.Generating), round(c.Processor))
	}
	return t.end(out)
}

func showMemory(out io.Writer, results []result) error {
	starts := coldStarts(results)
	if len(starts) == 0 {
		return nil
	}
	t := newTable(out)
	t.row("memory in MiB\tpeak\tresident\theap\tstacks\tresident, all given back\theap\tstacks\tKiB per Service\tobjects")
	for _, c := range starts {
		m := c.Memory
		t.row("%d × %d\t%.0f\t%.0f\t%.0f\t%.0f\t%.0f\t%.0f\t%.0f\t%.2f\t%d", c.Services, c.Endpoints,
			m.Peak, m.Resident, m.Heap, m.Stacks, m.Least, m.LeastHeap, m.LeastStacks, m.PerServiceKiB, m.HeapObjects)
	}
	return t.end(out)
}

func showResyncs(out io.Writer, results []result) error {
	t := newTable(out)
	count := 0
	t.row("Services\tevents without a change\ttime of each\trendered\tbatches\tobjects")
	for _, r := range results {
		if w := r.Resync; w != nil {
			t.row("%d\t%d\t%s\t%d\t%d\t%d", w.Services, w.Events, round(w.PerEvent), w.Rendered, w.Batches, w.Objects)
			count++
		}
	}
	if count == 0 {
		return nil
	}
	return t.end(out)
}

func showVerdicts(out io.Writer, results []result) error {
	all := judge(results)
	if len(all) == 0 {
		return nil
	}
	t := &table{Writer: tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)}
	t.row("target\twhat\tmeasured\twanted\t")
	for _, v := range all {
		word := "ok"
		if !v.Met {
			word = "MISSED"
		}
		t.row("%s\t%s\t%s\t%s\t%s", v.Target, v.What, v.Figure, v.Want, word)
	}
	return t.end(out)
}

func showLoad(out io.Writer, results []result) error {
	t := &table{Writer: tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)}
	t.row("measurement\tmode\tload average when it began")
	for _, r := range results {
		t.row("%s\t%s\t%s", r.Name, r.Mode, r.Load)
	}
	return t.end(out)
}

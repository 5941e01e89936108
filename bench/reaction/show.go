package main

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// table prints rows in columns; the first error stays.
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

// end prints what was put in, and an empty line.
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
	for _, part := range []func(io.Writer, []result) error{showReactions, showColdStarts, showMemory, showResyncs, showVerdicts, showLoad} {
		if err := part(out, results); err != nil {
			return err
		}
	}
	return nil
}

func showReactions(out io.Writer, results []result) error {
	t := newTable(out)
	count := 0
	t.row("Services\tendpoints\tchange\tpace\tp50\tp99\tmax\twrite p50\tobjects\tlines\tbytes\tbatches\taudits")
	for _, r := range results {
		for _, f := range r.Reactions {
			audits := "-"
			if f.Audits > 0 {
				audits = fmt.Sprintf("%d ≤ %s", f.Audits, round(f.AuditTook))
			}
			t.row("%d\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%.2f\t%.2f\t%.0f\t%d\t%s", f.Services, f.Endpoints, f.Kind, f.Pace,
				round(f.P50), round(f.P99), round(f.Max), round(f.Write), f.Objects, f.Lines, f.Bytes, f.Batches, audits)
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
	t.row("memory in MiB\tpeak\tresident\theap\tstacks\tresident, all given back\theap\tstacks\tKiB per Service")
	for _, c := range starts {
		m := c.Memory
		t.row("%d × %d\t%.0f\t%.0f\t%.0f\t%.0f\t%.0f\t%.0f\t%.0f\t%.2f", c.Services, c.Endpoints,
			m.Peak, m.Resident, m.Heap, m.Stacks, m.Least, m.LeastHeap, m.LeastStacks, m.PerServiceKiB)
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
	t.row("measurement\tload average when it began")
	for _, r := range results {
		t.row("%s\t%s", r.Name, r.Load)
	}
	return t.end(out)
}

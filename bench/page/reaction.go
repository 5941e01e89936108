package main

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/sluice-proxy/sluice/bench/result"
)

// The page shows these parts of what bench/reaction prints in JSON.
type (
	inside struct {
		Results []struct {
			Mode      string
			Reactions []change
			Cold      *start
			Restart   *struct {
				Cold     *start
				Restarts []*start
			}
			Churn *struct {
				Share float64
				change
				Own, Children time.Duration
			}
		}
		Growth []struct {
			What     string
			From, To int
			Exponent float64
			Expected int
		}
		Verdicts []struct {
			Target, What, Figure, Want string
			Met                        bool
		}
	}
	change struct {
		Services, Endpoints int
		Kind, Pace          string
		P50, P99, Max       time.Duration
		Objects, Bytes      float64
	}
	start struct {
		Services, Endpoints   int
		Programmed, Processor time.Duration
		Memory                struct{ Peak, Resident float64 }
	}
)

func (p *page) reactions(sources []source) error {
	targets := result.Table{Head: []string{"inside the process", "target", "measured", "wanted", ""}}
	for i, s := range sources {
		in, err := decode[inside](s)
		if err != nil {
			return err
		}
		if len(in.Results) == 0 {
			return fmt.Errorf("%s: no results", s.file)
		}
		out := section{Title: "mode " + in.Results[0].Mode, Command: s.Command, Machine: s.Machine}
		for _, t := range []result.Table{in.changes(), in.churns(), in.starts(), in.growth()} {
			if len(t.Rows) > 0 {
				out.Tables = append(out.Tables, t)
			}
		}
		if lines := in.lines(); len(lines) > 0 {
			title := "Growth inside the process, " + out.Title
			out.Pictures = append(out.Pictures, p.draw(slug("reaction", in.Results[0].Mode, i+1), title,
				plot{title: title, xLabel: "Services", yLabel: "milliseconds", xLog: true, yLog: true, lines: lines}.svg()))
		}
		p.Reactions = append(p.Reactions, out)
		for _, v := range in.Verdicts {
			targets.Rows = append(targets.Rows, []string{v.What, v.Target, v.Figure, v.Want, word(v.Met)})
		}
	}
	if len(targets.Rows) > 0 {
		p.Targets = append(p.Targets, targets)
	}
	return nil
}

func (in inside) changes() result.Table {
	t := result.Table{Head: []string{"change", "Services", "endpoints each", "pace", "p50", "p99", "longest", "objects", "bytes"}}
	for _, r := range in.Results {
		for _, c := range r.Reactions {
			t.Rows = append(t.Rows, []string{
				c.Kind, grouped(c.Services), grouped(c.Endpoints), c.Pace, took(c.P50), took(c.P99), took(c.Max),
				fmt.Sprintf("%.1f", c.Objects), fmt.Sprintf("%.0f", c.Bytes),
			})
		}
	}
	return t
}

// churns are in iptables mode, where the share of the time that writes may take decides.
func (in inside) churns() result.Table {
	t := result.Table{Head: []string{"churn, Services", "endpoints each", "pace", "write share", "p50", "p99", "longest", "process, per minute", "its children"}}
	for _, r := range in.Results {
		if c := r.Churn; c != nil {
			t.Rows = append(t.Rows, []string{
				grouped(c.Services), grouped(c.Endpoints), c.Pace, fmt.Sprintf("%g", c.Share), took(c.P50), took(c.P99), took(c.Max),
				took(c.Own), took(c.Children),
			})
		}
	}
	return t
}

func (in inside) starts() result.Table {
	t := result.Table{Head: []string{"start", "Services", "endpoints each", "all in force", "processor time", "resident", "peak"}}
	add := func(what string, s *start) {
		t.Rows = append(t.Rows, []string{
			what, grouped(s.Services), grouped(s.Endpoints), took(s.Programmed), took(s.Processor),
			fmt.Sprintf("%.0f MiB", s.Memory.Resident), fmt.Sprintf("%.0f MiB", s.Memory.Peak),
		})
	}
	for _, r := range in.Results {
		if r.Cold != nil {
			add("cold", r.Cold)
		}
		if r.Restart != nil {
			add("cold", r.Restart.Cold)
			for _, s := range r.Restart.Restarts {
				add("restart", s)
			}
		}
	}
	return t
}

func (in inside) growth() result.Table {
	t := result.Table{Head: []string{"growth as a power of the Services", "from", "to", "exponent", "wanted"}}
	for _, g := range in.Growth {
		t.Rows = append(t.Rows, []string{g.What, grouped(g.From), grouped(g.To), fmt.Sprintf("%.2f", g.Exponent), fmt.Sprint(g.Expected)})
	}
	return t
}

// drawn are the kinds of changes in the picture.
var drawn = []string{"endpoint replaced", "replaced, sustained", "Service added", "Service added meanwhile"}

// lines are what was measured at several sizes: cold starts, and medians of changes.
func (in inside) lines() (lines []line) {
	add := func(name string, dashed bool, services int, took time.Duration) {
		i := slices.IndexFunc(lines, func(l line) bool { return l.name == name })
		if i < 0 {
			i = len(lines)
			lines = append(lines, line{name: name, dashed: dashed})
		}
		lines[i].points = append(lines[i].points, point{float64(services), took.Seconds() * 1000})
	}
	for _, r := range in.Results {
		if r.Cold != nil {
			add(fmt.Sprintf("cold start × %d", r.Cold.Endpoints), false, r.Cold.Services, r.Cold.Programmed)
		}
		for _, c := range r.Reactions {
			if !slices.Contains(drawn, c.Kind) {
				continue
			}
			add(fmt.Sprintf("%s, %s, p50", c.Kind, c.Pace), true, c.Services, c.P50)
		}
	}
	for _, l := range lines {
		slices.SortStableFunc(l.points, func(a, b point) int { return cmp.Compare(a.x, b.x) })
	}
	lines = slices.DeleteFunc(lines, func(l line) bool { return l.points[0].x == l.points[len(l.points)-1].x })
	for i := range lines {
		lines[i].style = styles[i%len(styles)].name
	}
	return lines
}

func took(d time.Duration) string { return result.Figure{Unit: "s", Value: d.Seconds()}.Text() }

// word says whether a target was met.
func word(met bool) string {
	if met {
		return "ok"
	}
	return "**missed**"
}

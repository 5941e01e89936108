package main

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/sluice-proxy/sluice/bench/result"
)

// measured is what the page shows of a result of bench/reaction.
type measured struct {
	Name, Mode string
	Reactions  []struct {
		Services, Endpoints int
		Kind, Pace          string
		P50, P99, Max       time.Duration
		Objects, Bytes      float64
	}
	Cold *struct {
		Services, Endpoints   int
		Programmed, Processor time.Duration
		Memory                struct{ Peak, Resident float64 }
	}
}

func (p *page) reactions(sources []source) error {
	for _, s := range sources {
		all, err := decode[[]measured](s)
		if err != nil {
			return err
		}
		if len(all) == 0 {
			return fmt.Errorf("%s: no results", s.file)
		}
		p.Reactions = append(p.Reactions, p.reaction(s, all))
	}
	return nil
}

func (p *page) reaction(s source, all []measured) section {
	changes := result.Table{Head: []string{"change", "Services", "endpoints each", "pace", "p50", "p99", "longest", "objects", "bytes"}}
	starts := result.Table{Head: []string{"cold start", "endpoints each", "all programmed", "processor time", "resident", "peak"}}
	fast := map[string]*line{}
	var growing []string
	grow := func(name string, dashed bool, services int, took time.Duration) {
		if fast[name] == nil {
			fast[name] = &line{name: name, style: result.Sluice, dashed: dashed}
			growing = append(growing, name)
		}
		fast[name].points = append(fast[name].points, point{float64(services), took.Seconds() * 1000})
	}
	for _, m := range all {
		for _, c := range m.Reactions {
			changes.Rows = append(changes.Rows, []string{
				c.Kind, grouped(c.Services), grouped(c.Endpoints), c.Pace, took(c.P50), took(c.P99), took(c.Max),
				fmt.Sprintf("%.1f", c.Objects), fmt.Sprintf("%.0f", c.Bytes),
			})
			if c.Services >= 1000 {
				grow(c.Kind+", "+c.Pace+", p50", true, c.Services, c.P50)
			}
		}
		if c := m.Cold; c != nil {
			starts.Rows = append(starts.Rows, []string{
				grouped(c.Services), grouped(c.Endpoints), took(c.Programmed), took(c.Processor),
				fmt.Sprintf("%.0f MiB", c.Memory.Resident), fmt.Sprintf("%.0f MiB", c.Memory.Peak),
			})
			grow(fmt.Sprintf("cold start × %d", c.Endpoints), false, c.Services, c.Programmed)
		}
	}
	out := section{Title: "mode " + all[0].Mode, Command: s.Command, Machine: s.Machine}
	for _, t := range []result.Table{changes, starts} {
		if len(t.Rows) > 0 {
			out.Tables = append(out.Tables, t)
		}
	}
	var lines []line
	for _, name := range growing {
		l := fast[name]
		slices.SortStableFunc(l.points, func(a, b point) int { return cmp.Compare(a.x, b.x) })
		if len(l.points) > 1 && l.points[0].x < l.points[len(l.points)-1].x {
			lines = append(lines, *l)
		}
	}
	if len(lines) > 0 {
		title := "Growth inside the process, mode " + all[0].Mode
		out.Pictures = append(out.Pictures, p.draw(slug("reaction", all[0].Mode), title,
			plot{title: title, xLabel: "Services", yLabel: "milliseconds", xLog: true, yLog: true, lines: lines}.svg()))
	}
	return out
}

func took(d time.Duration) string { return result.Figure{Unit: "s", Value: d.Seconds()}.Text() }

package main

import (
	"fmt"
	"slices"

	"github.com/sluice-proxy/sluice/bench/result"
	"github.com/sluice-proxy/sluice/bench/rig"
)

const slow, busy = "20 changes/s", "100 changes/s"

// goalMode and goalServices are the mode with goals, and the size at which Sluice is compared with kube-proxy.
const goalMode, goalServices = "nftables", 5000

// compared are the rows of the first table.
var compared = []struct {
	name, step, what string
	// most is the goal of Sluice at up to 10,000 Services. ratio is the goal of kube-proxy's value divided by Sluice's at
	// goalServices. 0 is no goal.
	most, ratio float64
}{
	{"API write to first answer, p50", busy, result.AnswerP50, 0.010, 300},
	{"API write to first answer, p99", busy, result.AnswerP99, 0.050, 0},
	{"cold start", result.ColdStart, result.ToAnswers, 3, 4},
	{"restart over existing rules", result.Restart, result.ToChanges, 1, 0},
	{"CPU time per minute, " + slow, slow, result.PerMinute, 0, 30},
	{"CPU time per minute, " + busy, busy, result.PerMinute, 0, 30},
	{"resident memory, " + busy, busy, result.Resident, 150, 0},
}

// Compared has a row per value and program, and a column per comparison. A missed goal is bold.
func (p *page) Compared() rig.Table {
	t := rig.Table{Head: []string{"", "program"}}
	for _, c := range p.Comparisons {
		name := grouped(c.Services)
		if c.Mode != goalMode {
			name += " " + c.Mode + " " + c.Variant
		}
		t.Head = append(t.Head, name)
	}
	t.Head = append(t.Head, "goal")
	for i, r := range compared {
		name := r.name
		for _, program := range p.programs() {
			t.Add(append([]string{name}, p.row(i, program)...)...)
			name = ""
		}
	}
	for i, program := range p.programs() {
		row := []string{[]string{"connections lost", "", ""}[i], program}
		for _, c := range p.Comparisons {
			attempted, lost := c.Lost(program)
			row = append(row, bold(fmt.Sprintf("%d of %s", lost, grouped(attempted)), lost > 0 && i == 0))
		}
		t.Add(append(row, []string{"0", "", ""}[i])...)
	}
	return t
}

// programs are those that were measured.
func (p *page) programs() []string {
	return slices.DeleteFunc(slices.Clone(result.Programs), func(program string) bool {
		return !slices.ContainsFunc(p.Comparisons, func(c *result.Comparison) bool {
			return slices.ContainsFunc(c.Figures, func(f result.Figure) bool { return f.Program == program })
		})
	})
}

func (p *page) row(i int, program string) []string {
	r := compared[i]
	cells, goal := []string{program}, ""
	for _, c := range p.Comparisons {
		f, ok := c.Median(program, r.step, r.what)
		if !ok {
			cells = append(cells, "")
			continue
		}
		missed := program == result.Sluice && r.most > 0 && (f.Beyond || f.Value > r.most)
		if program == result.KubeProxy && c.Services == goalServices {
			ours, _ := c.Median(result.Sluice, r.step, r.what)
			missed = f.Value < r.ratio*ours.Value
		}
		cells = append(cells, bold(f.Text(), missed && c.Mode == goalMode))
		switch {
		case program == result.Sluice && r.most > 0:
			goal = "≤ " + result.Figure{Value: r.most, Unit: f.Unit}.Text()
		case program == result.KubeProxy && r.ratio > 0:
			goal = fmt.Sprintf("≥ %g × at %s", r.ratio, grouped(goalServices))
		}
	}
	return append(cells, goal)
}

// color is the name of the program's color in styles.
func color(program string) string {
	if program == result.Former {
		return "former"
	}
	return program
}

func bold(text string, missed bool) string {
	if missed {
		return "**" + text + "**"
	}
	return text
}

// bySize is a line with a value of each comparison in goalMode that was reached in time.
func (p *page) bySize(program, step, what string) (points []point) {
	for _, c := range p.Comparisons {
		if f, ok := c.Median(program, step, what); ok && !f.Beyond && f.Value > 0 && c.Mode == goalMode {
			points = append(points, point{float64(c.Services), f.Value})
		}
	}
	return points
}

// growth is a plot by the number of Services.
func growth(title, unit string) plot {
	return plot{title: title, xLabel: "Services", yLabel: unit, xLog: true, yLog: true}
}

// Latency draws the time from the API write to the first answer by the number of Services.
func (p *page) Latency() string {
	drawn := growth("API write to first answer at "+busy, "seconds")
	for _, program := range result.Programs {
		drawn.lines = append(drawn.lines, line{program + ", p50", color(program), false, p.bySize(program, busy, result.AnswerP50)},
			line{program + ", p99", color(program), true, p.bySize(program, busy, result.AnswerP99)})
	}
	return p.picture("latency", drawn)
}

// Distribution draws the distribution of that time in the largest cluster.
func (p *page) Distribution() string {
	if len(p.Comparisons) == 0 {
		return ""
	}
	largest := p.Comparisons[len(p.Comparisons)-1]
	title := "Distribution at " + grouped(largest.Services) + " Services"
	drawn := plot{title: title, xLabel: "milliseconds", yLabel: "percent of the changes", xLog: true}
	for _, d := range largest.Distributions {
		if d.Round != 1 || !slices.Contains(result.ChurnSteps, d.Step) {
			continue
		}
		l := line{name: d.Program + ", " + d.Step, style: color(d.Program), dashed: d.Step == slow}
		for percent, ms := range d.Percentiles {
			if ms > 0 {
				l.points = append(l.points, point{ms, float64(percent)})
			}
		}
		drawn.lines = append(drawn.lines, l)
	}
	return p.picture("distribution", drawn)
}

// Memory draws resident memory by the number of Services.
func (p *page) Memory() string {
	drawn := growth("Resident memory", "MiB")
	for _, program := range result.Programs {
		points := p.bySize(program, busy, result.Resident)
		drawn.lines = append(drawn.lines, line{program + ", " + busy, color(program), false, points})
	}
	var points []point
	for _, r := range p.Reactions {
		for _, one := range r.Results {
			if s := one.Cold; s != nil && one.Mode == goalMode {
				points = append(points, point{float64(s.Services), s.Memory.Resident})
			}
		}
	}
	slices.SortFunc(points, func(a, b point) int { return int(a.x - b.x) })
	drawn.lines = append(drawn.lines, line{"sluice in one process, after a cold start", "blue", true, points})
	return p.picture("memory", drawn)
}

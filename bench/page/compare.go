package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sluice-proxy/sluice/bench/result"
)

// programs are compared, in this order.
var programs = []string{result.Sluice, result.KubeProxy}

// comparison is a record of bench/compare.
type comparison struct {
	source
	*result.Comparison
}

// mode names the mode with its variant.
func (c comparison) mode() string {
	if c.Variant != "" {
		return c.Mode + " (" + c.Variant + ")"
	}
	return c.Mode
}

// slug names the pictures of a comparison, or of its mode.
func slug(words ...any) string {
	return strings.NewReplacer(" ", "-", "(", "", ")", "").Replace(strings.TrimSuffix(fmt.Sprintln(words...), "\n"))
}

func (p *page) comparisons(sources []source) error {
	var all []comparison
	for _, s := range sources {
		c, err := decode[*result.Comparison](s)
		if err != nil {
			return err
		}
		all = append(all, comparison{s, c})
	}
	slices.SortFunc(all, func(a, b comparison) int {
		return cmp.Or(-cmp.Compare(a.mode(), b.mode()), cmp.Compare(a.Services, b.Services), cmp.Compare(a.file, b.file))
	})
	for _, c := range all {
		p.Comparisons = append(p.Comparisons, p.comparison(c))
		if t, ok := fleet(c); ok {
			p.Fleet = append(p.Fleet, section{
				Title: fmt.Sprintf("%s, %s Services", c.mode(), grouped(c.Services)), Command: c.Command, Machine: c.Machine,
				Tables: []result.Table{t},
			})
		}
	}
	p.grow(all)
	if judged := judge(all); len(judged.Rows) > 0 {
		p.Targets = append(p.Targets, judged)
	}
	return nil
}

func (p *page) comparison(c comparison) section {
	s := section{
		Title: fmt.Sprintf("%s, %s Services", c.mode(), grouped(c.Services)), Command: c.Command, Machine: c.Machine,
		Intro: fmt.Sprintf("%s Services with %s endpoints: %s. Each program had %s and %g minutes of churn.",
			grouped(c.Services), grouped(c.Endpoints), mix(c.Mix), turns(c.Rounds), c.Minutes/2),
		Tables: c.Tables(),
	}
	if c.Incomplete != "" {
		s.Intro += " The comparison was cut short: " + c.Incomplete + "."
	}
	if lines := latencies(c); len(lines) > 0 {
		s.Pictures = append(s.Pictures, p.draw(slug("latency", c.mode(), c.Services), "From the API write to the first answered connection",
			plot{
				title: "API write to first answered connection, " + s.Title, xLabel: "milliseconds", yLabel: "per cent of the changes",
				xLog: true, lines: lines,
			}.svg()))
	}
	if groups := processorTimes(c); len(groups) > 0 {
		s.Pictures = append(s.Pictures, p.draw(slug("processor", c.mode(), c.Services), "Processor time under churn",
			bars{
				title: "Processor time under churn, " + s.Title, yLabel: "seconds per minute",
				parts: [2]string{"user", "system"}, groups: groups,
			}.svg()))
	}
	return s
}

func turns(rounds int) string {
	if rounds == 1 {
		return "one turn"
	}
	return fmt.Sprintf("%d turns", rounds)
}

// mix lists the classes of Services, the largest first.
func mix(counts map[string]int) string {
	classes := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(-cmp.Compare(counts[a], counts[b]), cmp.Compare(a, b))
	})
	for i, class := range classes {
		classes[i] = fmt.Sprintf("%s %s", grouped(counts[class]), class)
	}
	return strings.Join(classes, "; ")
}

// latencies returns the distributions of the first round under churn.
func latencies(c comparison) (lines []line) {
	for _, program := range programs {
		for _, d := range c.Distributions {
			if d.Program != program || d.Round != 1 || !slices.Contains(result.ChurnSteps, d.Step) {
				continue
			}
			l := line{name: program + ", " + d.Step, style: program, dashed: d.Step == result.ChurnSteps[0]}
			for percent, ms := range d.Percentiles {
				if ms > 0 {
					l.points = append(l.points, point{ms, float64(percent)})
				}
			}
			if len(l.points) > 0 {
				lines = append(lines, l)
			}
		}
	}
	return lines
}

func processorTimes(c comparison) (groups []barGroup) {
	for _, step := range result.ChurnSteps {
		g := barGroup{name: step}
		for _, program := range programs {
			user, ok := c.Median(program, step, result.UserPerMinute)
			system, _ := c.Median(program, step, result.SystemPerMinute)
			if ok {
				g.bars = append(g.bars, bar{program, user.Value, system.Value})
			}
		}
		if len(g.bars) > 0 {
			groups = append(groups, g)
		}
	}
	return groups
}

// grow draws what was measured at several sizes.
func (p *page) grow(all []comparison) {
	var modes []string
	for _, c := range all {
		if !slices.Contains(modes, c.mode()) {
			modes = append(modes, c.mode())
		}
	}
	busiest := result.ChurnSteps[len(result.ChurnSteps)-1]
	for _, mode := range modes {
		var lines []line
		for _, program := range programs {
			starts := line{name: program + ", cold start", style: program}
			changes := line{name: program + ", change at " + busiest + ", p50", style: program, dashed: true}
			for _, c := range all {
				if c.mode() != mode {
					continue
				}
				starts.add(c, program, result.ColdStart, result.ToAnswers)
				changes.add(c, program, busiest, result.AnswerP50)
			}
			for _, l := range []line{starts, changes} {
				if len(l.points) > 1 {
					lines = append(lines, l)
				}
			}
		}
		if len(lines) > 0 {
			p.Growth = append(p.Growth, p.draw(slug("growth", mode), "Growth with the number of Services, "+mode, plot{
				title: "Growth with the number of Services, " + mode, xLabel: "Services", yLabel: "seconds", xLog: true, yLog: true, lines: lines,
			}.svg()))
		}
	}
}

// add adds a figure of a comparison to a line, unless it took longer than anybody waited.
func (l *line) add(c comparison, program, step, what string) {
	if f, ok := c.Median(program, step, what); ok && !f.Beyond && f.Value > 0 {
		l.points = append(l.points, point{float64(c.Services), f.Value})
	}
}

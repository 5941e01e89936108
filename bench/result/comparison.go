package result

import (
	"io"
	"slices"

	"github.com/sluice-proxy/sluice/bench/rig"
)

// The programs that are compared. Former is kube-proxy of the minor release before.
const (
	Sluice    = "sluice"
	KubeProxy = "kube-proxy"
	Former    = "kube-proxy 1.36"
)

// Programs are all of them, in the order in which they take turns and in which tables show them.
var Programs = []string{Sluice, KubeProxy, Former}

// row is one thing that was measured, with the results of each program in all rounds.
type row struct {
	step, what string
	figures    map[string][]Figure
}

// rows returns what was measured, in the order of the first round.
func (c *Comparison) rows() []row {
	var all []row
	for _, f := range c.Figures {
		i := slices.IndexFunc(all, func(r row) bool { return r.step == f.Step && r.what == f.What })
		if i < 0 {
			i = len(all)
			all = append(all, row{f.Step, f.What, map[string][]Figure{}})
		}
		all[i].figures[f.Program] = append(all[i].figures[f.Program], f)
	}
	return all
}

// of returns the median of a program's rounds, and reports whether there is one.
func (r row) of(program string) (Figure, bool) {
	figures := r.figures[program]
	if len(figures) == 0 {
		return Figure{}, false
	}
	var values []float64
	for _, f := range figures {
		values = append(values, f.Value)
	}
	middle := figures[0]
	middle.Value = rig.Quantile(values, 0.5)
	middle.Beyond = slices.ContainsFunc(figures, func(f Figure) bool { return f.Beyond })
	return middle, true
}

// ratio returns the figure of KubeProxy divided by Sluice's, as text. The load has none: it is the same for
// both.
func (r row) ratio() string {
	ours, ok := r.of(Sluice)
	theirs, both := r.of(KubeProxy)
	if !ok || !both || ours.Value == 0 || ours.Beyond || ours.Unit == "" || ours.Unit == "/s" {
		return ""
	}
	text := digits(theirs.Value / ours.Value)
	if theirs.Beyond {
		text = "> " + text
	}
	return text
}

// Tables returns the comparison, one table for each step.
func (c *Comparison) Tables() []rig.Table {
	var all []rig.Table
	step := ""
	programs := slices.DeleteFunc(slices.Clone(Programs), func(program string) bool {
		return !slices.ContainsFunc(c.Figures, func(f Figure) bool { return f.Program == program })
	})
	for _, r := range c.rows() {
		if r.step != step {
			step = r.step
			all = append(all, rig.Table{Head: slices.Concat([]string{step}, programs, []string{"ratio"})})
		}
		cells := []string{r.what}
		for _, program := range programs {
			text := ""
			if f, ok := r.of(program); ok {
				text = f.Text()
			}
			cells = append(cells, text)
		}
		last := &all[len(all)-1]
		last.Rows = append(last.Rows, append(cells, r.ratio()))
	}
	return all
}

// Print prints a comparison for people.
func (c *Comparison) Print(out io.Writer) error {
	for _, t := range c.Tables() {
		if err := t.Print(out); err != nil {
			return err
		}
	}
	return nil
}

// Median returns the median of a program's rounds. It reports false when nothing was measured.
func (c *Comparison) Median(program, step, what string) (Figure, bool) {
	for _, r := range c.rows() {
		if r.step == step && r.what == what {
			return r.of(program)
		}
	}
	return Figure{}, false
}

// Lost returns how many connections to unchanged Services a program's client has attempted and lost.
func (c *Comparison) Lost(program string) (attempted, lost int) {
	for _, f := range c.Figures {
		switch {
		case f.Program != program:
		case f.What == Attempted:
			attempted += int(f.Value)
		case f.What == Lost:
			lost += int(f.Value)
		}
	}
	return attempted, lost
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/sluice-proxy/sluice/bench/rig"
)

// The programs that are compared. former is kube-proxy of the minor release before.
const (
	sluice    = "sluice"
	kubeProxy = "kube-proxy"
	former    = "kube-proxy 1.36"
)

// programs are all of them, in the order in which they take turns and in which tables show them.
var programs = []string{sluice, kubeProxy, former}

// Names of steps and of values that several steps note, or that the summary shows.
const (
	coldStart = "cold start"
	restart   = "restart"

	toAnswers = "start of the process to Services answer"
	toChanges = "start of the process to changes applied"
	toAnswer  = "write to answer"
	perMinute = "CPU time per minute"
	resident  = "resident at the end"
	attempted = "connections attempted"
	lost      = "connections lost"
)

// value is one measurement of one program in one round.
type value struct {
	program, step, what string
	// unit is that of number: s, MiB, /s, or empty for a count.
	unit   string
	number float64
	// beyond says that it took longer than number.
	beyond bool
}

func (v value) String() string {
	text := digits(v.number) + " " + v.unit
	switch {
	case v.unit == "s" && v.number < 1:
		text = digits(v.number*1000) + " ms"
	case v.unit == "":
		text = strconv.FormatFloat(v.number, 'f', 0, 64)
	}
	if v.beyond {
		return "not within " + text
	}
	return text
}

// digits is a number with three digits, or with all before the point.
func digits(v float64) string {
	for decimals, below := range []float64{999.5, 99.95, 9.995} {
		if v >= below || v == 0 {
			return strconv.FormatFloat(v, 'f', max(0, decimals-1), 64)
		}
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}

// percentile returns a percentile of durations in seconds, and false if it is one of those that did not end.
func percentile(took []time.Duration, beyond, percent int) (float64, bool) {
	v, ok := rig.NearestRank(took, len(took)+beyond, percent)
	return v.Seconds(), ok
}

// comparison is what all programs did, in the order of the measurements.
type comparison struct{ values []value }

// row is one thing that was measured, with the values of each program in all rounds.
type row struct {
	step, what string
	values     map[string][]value
}

// rows returns what was measured, in the order of the first round.
func (c *comparison) rows() (all []row) {
	for _, v := range c.values {
		i := slices.IndexFunc(all, func(r row) bool { return r.step == v.step && r.what == v.what })
		if i < 0 {
			i, all = len(all), append(all, row{v.step, v.what, map[string][]value{}})
		}
		all[i].values[v.program] = append(all[i].values[v.program], v)
	}
	return all
}

// of returns the median of a program's rounds, and reports whether there is one.
func (r row) of(program string) (value, bool) {
	values := r.values[program]
	if len(values) == 0 {
		return value{}, false
	}
	var numbers []float64
	for _, v := range values {
		numbers = append(numbers, v.number)
	}
	middle := values[0]
	middle.number = rig.Quantile(numbers, 0.5)
	middle.beyond = slices.ContainsFunc(values, func(v value) bool { return v.beyond })
	return middle, true
}

// cells returns the value of each program, and kube-proxy's divided by Sluice's. The load has no ratio: it is the same
// for both.
func (r row) cells(names []string) (cells []string) {
	for _, program := range names {
		text := ""
		if v, ok := r.of(program); ok {
			text = v.String()
		}
		cells = append(cells, text)
	}
	ours, ok := r.of(sluice)
	theirs, both := r.of(kubeProxy)
	ratio := ""
	if ok && both && ours.number > 0 && !ours.beyond && ours.unit != "" && ours.unit != "/s" {
		ratio = digits(theirs.number/ours.number) + " ×"
		if theirs.beyond {
			ratio = "> " + ratio
		}
	}
	return append(cells, ratio)
}

// measured returns the programs that have values.
func (c *comparison) measured() []string {
	return slices.DeleteFunc(slices.Clone(programs), func(program string) bool {
		return !slices.ContainsFunc(c.values, func(v value) bool { return v.program == program })
	})
}

// summarized are the rows of the first table. most is the goal of Sluice at up to 10,000 Services in mode nftables, 0 for
// none.
var summarized = []struct {
	name, step, what string
	most             value
}{
	{"API write to first answer, p50", churnStep(rates[1]), toAnswer + ", p50", value{unit: "s", number: 0.01}},
	{"API write to first answer, p99", churnStep(rates[1]), toAnswer + ", p99", value{unit: "s", number: 0.05}},
	{coldStart, coldStart, toAnswers, value{unit: "s", number: 3}},
	{"restart over existing rules", restart, toChanges, value{unit: "s", number: 1}},
	{"CPU time per minute, " + churnStep(rates[0]), churnStep(rates[0]), perMinute, value{}},
	{"CPU time per minute, " + churnStep(rates[1]), churnStep(rates[1]), perMinute, value{}},
	{"resident memory, " + churnStep(rates[1]), churnStep(rates[1]), resident, value{unit: "MiB", number: 150}},
}

// summary is the table of docs/performance.md. A missed goal is bold.
func (c *comparison) summary(title string) rig.Table {
	names := c.measured()
	t := rig.Table{Head: slices.Concat([]string{title}, names, []string{"ratio", "goal"})}
	rows := c.rows()
	for _, s := range summarized {
		i := slices.IndexFunc(rows, func(r row) bool { return r.step == s.step && r.what == s.what })
		if i < 0 {
			continue
		}
		cells, goal := rows[i].cells(names), ""
		if s.most.number > 0 {
			goal = "≤ " + s.most.String()
			if ours, ok := rows[i].of(sluice); ok && (ours.beyond || ours.number > s.most.number) {
				cells[0] = "**" + cells[0] + "**"
			}
		}
		t.Add(slices.Concat([]string{s.name}, cells, []string{goal})...)
	}
	row := []string{lost}
	for _, program := range names {
		count := map[string]float64{}
		for _, v := range c.values {
			if v.program == program {
				count[v.what] += v.number
			}
		}
		row = append(row, fmt.Sprintf("%.0f of %.0f", count[lost], count[attempted]))
	}
	t.Add(append(row, "", "0")...)
	return t
}

// print prints the summary, and a table for each step.
func (c *comparison) print(out io.Writer, title string) error {
	if len(c.values) == 0 {
		return nil
	}
	tables, names := []rig.Table{c.summary(title)}, c.measured()
	for _, r := range c.rows() {
		if tables[len(tables)-1].Head[0] != r.step {
			tables = append(tables, rig.Table{Head: slices.Concat([]string{r.step}, names, []string{"ratio"})})
		}
		tables[len(tables)-1].Add(append([]string{r.what}, r.cells(names)...)...)
	}
	for _, t := range tables {
		if err := t.Print(out); err != nil {
			return err
		}
	}
	return nil
}

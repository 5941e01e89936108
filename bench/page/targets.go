package main

import (
	"fmt"
	"math"

	"github.com/sluice-proxy/sluice/bench/result"
)

// target is what Sluice is held to in a comparison.
type target struct {
	name       string
	step, what string
	// most is the largest figure allowed, in clusters of at most that many Services; 0 means no limit.
	most     float64
	services int
	// ratio is the least that kube-proxy's figure must be a multiple of Sluice's, in clusters of
	// exactly that many Services; 0 means no target.
	ratio float64
}

const slow, busy = "20 changes/s", "100 changes/s"

// targets are those of each mode, for a machine with two cores.
var targets = map[string][]target{
	"nftables": {
		{name: "API write to answer, p50", step: busy, what: result.AnswerP50, most: 0.010, services: 10_000},
		{name: "API write to answer, p99", step: busy, what: result.AnswerP99, most: 0.050, services: 10_000},
		{name: "API write to answer, p50", step: busy, what: result.AnswerP50, ratio: 300, services: 5_000},
		{name: "API write to answer, p50", step: busy, what: result.AnswerP50, ratio: 1_000, services: 10_000},
		{name: "processor time", step: slow, what: result.PerMinute, ratio: 30, services: 5_000},
		{name: "processor time", step: busy, what: result.PerMinute, ratio: 30, services: 5_000},
		{name: "cold start", step: result.ColdStart, what: result.ToAnswers, most: 3, services: 10_000},
		{name: "cold start", step: result.ColdStart, what: result.ToAnswers, ratio: 4, services: 5_000},
		{name: "restart over own rules", step: result.Restart, what: result.ToChanges, most: 1, services: 10_000},
		{name: "resident memory", step: busy, what: result.Resident, most: 150, services: 10_000},
	},
	"iptables (legacy)": {
		{name: "API write to answer, p50", step: slow, what: result.AnswerP50, ratio: 8, services: 5_000},
		{name: "processor time", step: slow, what: result.PerMinute, ratio: 6, services: 5_000},
		{name: "processor time", step: busy, what: result.PerMinute, ratio: 6, services: 5_000},
	},
	"iptables (nft)": {
		{name: "API write to answer, p50", step: slow, what: result.AnswerP50, most: 0.150, services: 5_000},
		{name: "cold start", step: result.ColdStart, what: result.ToAnswers, most: 5, services: 5_000},
		{name: "cold start", step: result.ColdStart, what: result.ToAnswers, most: 12, services: 10_000},
		{name: "processor time", step: slow, what: result.PerMinute, ratio: 6, services: 5_000},
		{name: "processor time", step: busy, what: result.PerMinute, ratio: 6, services: 5_000},
	},
}

// judge compares all comparisons with the targets.
func judge(all []comparison) result.Table {
	t := result.Table{Head: []string{"target", "Services", "measured", "wanted", ""}}
	for _, c := range all {
		add := func(name, measured, wanted string, met bool) {
			t.Rows = append(t.Rows, []string{c.mode() + ": " + name, grouped(c.Services), measured, wanted, word(met)})
		}
		for _, w := range targets[c.mode()] {
			f, ok := c.Median(result.Sluice, w.step, w.what)
			if !ok {
				continue
			}
			name := w.name
			if w.step != w.name && w.step != result.Restart {
				name += ", " + w.step
			}
			limit := result.Figure{Value: w.most, Unit: f.Unit}
			if w.most > 0 && c.Services <= w.services {
				add(name, f.Text(), "≤ "+limit.Text(), !f.Beyond && f.Value <= w.most)
			}
			theirs, both := c.Median(result.KubeProxy, w.step, w.what)
			if w.ratio > 0 && c.Services == w.services && both {
				ratio := theirs.Value / f.Value
				text := tickText(math.Round(ratio*10)/10) + " × less than kube-proxy"
				if theirs.Beyond {
					text = "more than " + text
				}
				add(name, text, fmt.Sprintf("≥ %g ×", w.ratio), !f.Beyond && ratio >= w.ratio)
			}
		}
		attempted, lost := c.Lost(result.Sluice)
		add("connections lost, all steps", fmt.Sprintf("%d of %s", lost, grouped(attempted)), "0", lost == 0 && attempted > 0)
	}
	return t
}

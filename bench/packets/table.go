// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"slices"

	"github.com/sluice-proxy/sluice/bench/rig"
)

// show prints a table for each backend, size, family and direction: a line per case and a column per
// variant.
func show(out io.Writer, results []result) error {
	for len(results) > 0 {
		title := titleOf(results[0])
		end := slices.IndexFunc(results, func(r result) bool { return titleOf(r) != title })
		if end < 0 {
			end = len(results)
		}
		if err := showTable(out, title, results[:end]); err != nil {
			return err
		}
		results = results[end:]
	}
	return nil
}

func titleOf(r result) string {
	return fmt.Sprintf("%s, %s, %s, %d × %d", r.Backend, r.Family, r.Direction, r.Services, r.Endpoints)
}

func showTable(out io.Writer, title string, results []result) error {
	var variants, cases []string
	rounds := 0
	cell := map[[2]string]result{}
	for _, r := range results {
		if !slices.Contains(variants, r.Variant) {
			variants = append(variants, r.Variant)
		}
		if !slices.Contains(cases, r.Case) {
			cases = append(cases, r.Case)
		}
		rounds = max(rounds, r.Rounds)
		cell[[2]string{r.Case, r.Variant}] = r
	}
	_, err := fmt.Fprintf(out, "%s: µs, and the ratio to %s (quartiles) of %d rounds\n\n", title, results[0].Baseline, rounds)
	if err != nil {
		return err
	}
	t := rig.Table{Head: slices.Concat([]string{""}, variants, []string{"goal"})}
	for _, c := range cases {
		row := []string{c}
		goal := ""
		for _, v := range variants {
			r := cell[[2]string{c, v}]
			row = append(row, figure(r))
			if r.Goal > 0 {
				goal = fmt.Sprintf("≤ %.3g", r.Goal)
			}
		}
		t.Rows = append(t.Rows, append(row, goal))
	}
	return t.Print(out)
}

// figure is the text of one cell.
func figure(r result) string {
	switch {
	case r.Error != "":
		return "failed"
	case r.Rounds == 0:
		return ""
	case r.Variant == r.Baseline || r.Ratio == 0:
		return fmt.Sprintf("%.2f", r.Microseconds)
	}
	text := fmt.Sprintf("%.2f  %.3f (%.3f–%.3f)", r.Microseconds, r.Ratio, r.Low, r.High)
	if r.Missed {
		text = "**" + text + "**"
	}
	return text
}

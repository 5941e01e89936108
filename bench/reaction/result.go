// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-proxy/sluice/bench/rig"
)

// result is the result of one measurement.
type result struct {
	Reactions []reaction
	Cold      *coldStart
	// Restart has the cold start that wrote the rules, and the restarts that found them.
	Restart []*coldStart
}

// show prints tables for people.
func show(out io.Writer, results []result) error {
	reactions := table("change; Services; endpoints; pace; p50; p99; max; write p50; objects; lines; bytes; batches; CPU time; of children; resident, MiB")
	starts := table("start; Services; reduced; rendered; API answers; DNS answers; programmed; writing; reading; objects; generating, left out; CPU time")
	memories := table("memory in MiB; peak; resident; all returned; live; KiB per Service; objects on the heap")
	start := func(name string, c *coldStart) {
		row(&starts, name, c.size(), c.Listed, c.Rendered, c.Answers[firsts[0].key.String()], c.Answers[firsts[1].key.String()],
			c.Programmed, c.Writing, c.Reading, c.Objects, c.Generating, c.CPU)
	}
	for _, r := range results {
		for _, f := range r.Reactions {
			row(&reactions, f.Kind, f.Services, f.Endpoints, f.Pace, f.P50, f.P99, f.Max, f.Write, f.Objects, f.Lines,
				int(f.Bytes), f.Batches, f.Own, f.Children, int(f.Resident))
		}
		if c := r.Cold; c != nil {
			start("cold", c)
			m := c.Memory
			row(&memories, c.size(), int(m.Peak), int(m.Resident), int(m.Least), int(m.Live), m.Live*1024/float64(c.Services), m.Objects)
		}
		for i, c := range r.Restart {
			start([]string{"cold, before restarts", "restart"}[min(i, 1)], c)
		}
	}
	return errors.Join(reactions.Print(out), starts.Print(out), memories.Print(out))
}

// table makes a table out of a line of column names.
func table(names string) rig.Table { return rig.Table{Head: strings.Split(names, "; ")} }

// row adds values to a table.
func row(t *rig.Table, values ...any) {
	cells := make([]string, len(values))
	for i, v := range values {
		switch v := v.(type) {
		case time.Duration:
			cells[i] = rig.Round(v)
		case float64:
			cells[i] = strconv.FormatFloat(v, 'f', 2, 64)
		default:
			cells[i] = fmt.Sprint(v)
		}
	}
	t.Add(cells...)
}

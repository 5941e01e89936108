// SPDX-License-Identifier: Apache-2.0

package traffic

import "maps"

// Grown makes totals that only grow from counters that begin again at 0 when their object is replaced. What a counter
// counted after its last reading before that is lost. A Grown belongs to one goroutine at a time.
type Grown[K comparable] struct {
	last, carried map[K]Counts
}

// grownMax bounds the counters that are remembered after their objects are gone.
const grownMax = 100_000

// Add takes a reading, and returns its totals.
func (g *Grown[K]) Add(read map[K]Counts) map[K]Counts {
	if g.carried == nil || len(g.carried) > grownMax {
		kept := make(map[K]Counts)
		for k := range read {
			if c, ok := g.carried[k]; ok {
				kept[k] = c
			}
		}
		g.carried = kept
	}
	for k, before := range g.last {
		if read[k].smaller(before) {
			g.carried[k] = g.carried[k].Plus(before)
		}
	}
	g.last = maps.Clone(read)
	totals := make(map[K]Counts, len(read))
	for k, now := range read {
		totals[k] = now.Plus(g.carried[k])
	}
	return totals
}

// smaller reports whether a counter began again from 0.
func (c Counts) smaller(before Counts) bool {
	return c.Connections < before.Connections || c.BytesIn < before.BytesIn || c.BytesOut < before.BytesOut
}

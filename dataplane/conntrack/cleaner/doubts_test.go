// SPDX-License-Identifier: Apache-2.0

package cleaner

import (
	"slices"
	"testing"
	"time"
)

// TestDoubts: after a repair, all flows are judged again after 50, 200, 400 and 1000 ms, and longer while sweeps delete
// flows.
func TestDoubts(t *testing.T) {
	for name, c := range map[string]struct {
		deleted []int
		repairs []int
		want    []int
	}{
		"nothing is found":          {want: []int{50, 200, 400, 1000}},
		"only the last finds some":  {deleted: []int{0, 0, 0, 3, 0, 5}, want: []int{50, 200, 400, 1000, 2000}},
		"the last finds some twice": {deleted: []int{9, 0, 0, 3, 1}, want: []int{50, 200, 400, 1000, 2000, 3000}},
		"some are always found": {
			deleted: []int{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1},
			want:    []int{50, 200, 400, 1000, 2000, 3000, 4000, 5000, 6000, 7000},
		},
		"a second repair starts over": {repairs: []int{300}, want: []int{50, 200, 350, 500, 700, 1300}},
	} {
		t.Run(name, func(t *testing.T) {
			start := time.Unix(1, 0)
			d := doubts{}
			d.repaired(start)
			var got []int
			for ms := range 20000 {
				now := start.Add(time.Duration(ms) * time.Millisecond)
				if slices.Contains(c.repairs, ms) {
					d.repaired(now)
				}
				if !d.due(now) {
					continue
				}
				deleted := 0
				if len(got) < len(c.deleted) {
					deleted = c.deleted[len(got)]
				}
				got = append(got, ms)
				d.swept(now, deleted)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("judged again after %v ms, want %v", got, c.want)
			}
		})
	}
}

// TestDoubts_SweepWithoutRepair: a sweep that deletes flows without a preceding repair is not repeated.
func TestDoubts_SweepWithoutRepair(t *testing.T) {
	d := doubts{}
	now := time.Unix(1, 0)
	d.swept(now, 5)
	if d.due(now.Add(time.Hour)) {
		t.Error("all flows are judged again")
	}
}

// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"strconv"
	"testing"
)

// TestGrown_Monotonic: totals never decrease when counters restart or are missing for a while.
func TestGrown_Monotonic(t *testing.T) {
	var g Grown[string]
	for i, step := range []struct{ read, want uint64 }{{5, 5}, {8, 8}, {2, 10}, {2, 10}, {9, 17}, {0, 17}, {1, 18}} {
		got := g.Add(map[string]Counts{"a": {Connections: step.read}, "b": {Connections: 1}})
		if got["a"].Connections != step.want || got["b"].Connections != 1 {
			t.Errorf("step %d: got %v, want %d", i, got, step.want)
		}
	}
	if got := g.Add(nil); len(got) != 0 {
		t.Errorf("got %v of what has gone", got)
	}
	if got := g.Add(map[string]Counts{"a": {Connections: 3}}); got["a"].Connections != 21 {
		t.Errorf("got %v, want 21", got)
	}
	for i := range grownMax + 2 { // what has gone is forgotten in the end
		g.carried[strconv.Itoa(i)] = Counts{Connections: 1}
	}
	if got := g.Add(map[string]Counts{"a": {Connections: 3}}); got["a"].Connections != 21 || len(g.carried) != 1 {
		t.Errorf("got %v, and %d are carried", got, len(g.carried))
	}
}

// TestGrown_FewerBytes: a counter with fewer bytes than before has restarted, even if it has more connections.
func TestGrown_FewerBytes(t *testing.T) {
	var g Grown[string]
	g.Add(map[string]Counts{"c": {Connections: 1, BytesIn: 9}, "d": {Connections: 1, BytesOut: 9}})
	for key, got := range g.Add(map[string]Counts{"c": {Connections: 2, BytesIn: 1}, "d": {Connections: 2, BytesOut: 1}}) {
		if got.Connections != 3 || got.Bytes() != 10 {
			t.Errorf("%s, which has fewer bytes: got %v", key, got)
		}
	}
}

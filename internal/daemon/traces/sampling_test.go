// SPDX-License-Identifier: Apache-2.0

package traces

import (
	"testing"
	"time"
)

// TestSampling_CannotBeChosen: an author of objects, who chooses their names and triggers and so the trace, cannot
// choose what is sampled: traces that a process with another seed samples are sampled no more often than others. Nodes
// with one seed agree.
func TestSampling_CannotBeChosen(t *testing.T) {
	const tenth, wanted = 100_000, 2000
	with := func(seed uint32) *Traces {
		c := config("http://127.0.0.1:1", tenth)
		c.Seed = seed
		return New(c)
	}
	guess, other, same, random := with(0), with(7), with(7), with(0)
	sampled, byRandom, chosen := 0, 0, 0
	e := applied("web", time.Millisecond)
	for at := time.Now(); chosen < wanted; at = at.Add(time.Microsecond) {
		e.Trigger = at
		id := guess.id(&e.Contribution)
		if !guess.sampled(id) { // the tenant tries another trigger
			continue
		}
		chosen++
		if other.sampled(id) != same.sampled(id) {
			t.Fatal("two nodes with one seed do not agree")
		}
		if other.sampled(id) {
			sampled++
		}
		if random.sampled(id) {
			byRandom++
		}
	}
	for _, n := range []int{sampled, byRandom} {
		if n > wanted/5 {
			t.Errorf("%d of %d chosen changes are sampled, want a tenth", n, wanted)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package slots

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"testing/quick"

	"github.com/sluice-proxy/sluice/service"
)

func endpoint(n uint32) service.Endpoint {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], 10<<24+n)
	return service.Endpoint{AddrPort: netip.AddrPortFrom(netip.AddrFrom4(b), 8080)}
}

func endpoints(count int) []service.Endpoint {
	made := make([]service.Endpoint, count)
	for i := range made {
		made[i] = endpoint(uint32(i))
	}
	return made
}

// table returns the endpoint in each slot.
func table(endpoints []service.Endpoint) map[int]service.Endpoint {
	found := make(map[int]service.Endpoint)
	for i, slot := range Assign(endpoints) {
		found[slot] = endpoints[i]
	}
	return found
}

// writes counts the slots that differ between two tables.
func writes(before, after map[int]service.Endpoint) int {
	count := 0
	for slot, e := range after {
		if before[slot] != e {
			count++
		}
	}
	for slot := range before {
		if _, stays := after[slot]; !stays {
			count++
		}
	}
	return count
}

// TestAssign_EveryEndpointHasSlot: every endpoint has its own slot within the size of the table, and slot 0 is taken.
func TestAssign_EveryEndpointHasSlot(t *testing.T) {
	for _, count := range []int{0, 1, 2, 3, 4, 5, 7, 8, 9, 10, 14, 15, 28, 29, 100, 1000, 5000} {
		assigned := Assign(endpoints(count))
		slices.Sort(assigned)
		if len(slices.Compact(assigned)) != count {
			t.Errorf("%d endpoints do not have a slot each", count)
		}
		if count > 0 && (assigned[0] != 0 || assigned[count-1] >= Size(count)) {
			t.Errorf("%d endpoints have slots %d to %d of %d, want slot 0 taken and all inside", count, assigned[0], assigned[count-1], Size(count))
		}
	}
}

// TestAssign_OrderIndependent: the assignment does not depend on the order of the endpoints.
func TestAssign_OrderIndependent(t *testing.T) {
	property := func(seed uint64, size uint16) bool {
		random := rand.New(rand.NewPCG(seed, 0))
		list := endpoints(int(size)%300 + 1)
		before := table(list)
		random.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		return writes(before, table(list)) == 0
	}
	if err := quick.Check(property, &quick.Config{MaxCount: 50}); err != nil {
		t.Error(err)
	}
}

// TestAssign_ReplacementMovesFewSlots counts the slots that are written when one endpoint is replaced. The added and
// the removed endpoint take two slots, or one if they share it.
func TestAssign_ReplacementMovesFewSlots(t *testing.T) {
	for _, count := range []int{2, 3, 4, 8, 10, 16, 100, 1000, 5000} {
		rounds := min(500, 100000/count)
		list := endpoints(count)
		before := table(list)
		total, most := 0, 0
		for i := range rounds {
			list[(i*7919)%count] = endpoint(uint32(100000 + i))
			after := table(list)
			n := writes(before, after)
			total, most = total+n, max(most, n)
			before = after
		}
		mean := float64(total) / float64(rounds)
		t.Logf("%d endpoints, one replaced: %.2f slots written in the mean, %d at most", count, mean, most)
		if mean > 6 || most > 40 {
			t.Errorf("%d endpoints: %.2f slots written in the mean and %d at most, want 6 and 40 at most", count, mean, most)
		}
	}
}

// TestAssign_GrowthMovesFraction: scaling up by one endpoint moves few slots within a table size, and only a part of
// them at the step to the next size.
func TestAssign_GrowthMovesFraction(t *testing.T) {
	before := table(nil)
	within, steps := 0, 0
	for count := 1; count <= 1200; count++ {
		after := table(endpoints(count))
		n := writes(before, after)
		if Size(count) == Size(count-1) {
			within += n
		} else {
			steps++
			if count > 17 && n > count*7/10 {
				t.Errorf("the step to %d slots writes %d of %d", Size(count), n, count)
			}
		}
		before = after
	}
	if mean := float64(within) / float64(1200-steps); mean > 4 {
		t.Errorf("one endpoint more writes %.2f slots in the mean, want 4 at most", mean)
	}
}

func TestSize(t *testing.T) {
	for _, c := range []struct{ endpoints, size int }{
		{0, 1}, {1, 1}, {2, 2}, {3, 4}, {4, 4}, {5, 6}, {8, 8}, {9, 10}, {10, 10}, {11, 12},
		{14, 14}, {15, 16}, {16, 16}, {17, 20}, {18, 24}, {50, 64}, {56, 64}, {57, 80}, {5000, 6144},
	} {
		if got := Size(c.endpoints); got != c.size {
			t.Errorf("Size(%d) = %d, want %d", c.endpoints, got, c.size)
		}
	}
}

// TestSize_Bounded: a table is at most 10/7 as large as its number of endpoints, plus two, and there are few different
// sizes.
func TestSize_Bounded(t *testing.T) {
	sizes := map[int]bool{}
	for n := 1; n <= 10000; n++ {
		size := Size(n)
		sizes[size] = true
		if n > size || size > n*10/7+2 {
			t.Errorf("Size(%d) = %d", n, size)
		}
	}
	if len(sizes) > 50 {
		t.Errorf("%d different sizes up to 10,000 endpoints, want four per doubling and ten small ones", len(sizes))
	}
}

// TestTries_KeepBias calculates how often slot 0 is picked, and checks that the tries keep its bias small.
func TestTries_KeepBias(t *testing.T) {
	for n := 1; n <= 6000; n++ {
		size := Size(n)
		last := math.Pow(1-float64(n)/float64(size), float64(Tries(size)))
		first := (1-last)/float64(n) + last
		if over := first*float64(n) - 1; over > 2*bias {
			t.Errorf("%d endpoints: slot 0 is picked %.3f%% too often", n, 100*over)
		}
		if AlwaysFull(size) && n != size {
			t.Errorf("a table of %d slots holds %d endpoints", size, n)
		}
	}
	for _, size := range []int{1, 2} {
		if Tries(size) != 1 || !AlwaysFull(size) {
			t.Errorf("a table of %d slots needs %d tries, want 1", size, Tries(size))
		}
	}
}

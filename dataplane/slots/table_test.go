// SPDX-License-Identifier: Apache-2.0

package slots

import (
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// population returns distinct endpoints.
func population(n int, seed uint64) []service.Endpoint {
	r := rand.New(rand.NewPCG(seed, 7))
	all := make([]service.Endpoint, n)
	base := r.Uint32()
	for i := range all {
		addr := base + uint32(i)*uint32(1+seed%5)
		all[i].AddrPort = netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(addr >> 16), byte(addr >> 8), byte(addr)}), 8080)
	}
	slices.SortFunc(all, service.Endpoint.Compare)
	return all
}

func counts(table []int, n int) []int {
	c := make([]int, n)
	for _, e := range table {
		c[e]++
	}
	return c
}

// TestHashedTable_RemovalMovesFewClients: when an endpoint is removed from a hashed table, at most the clients of its
// share and 2 % of all clients move.
func TestHashedTable_RemovalMovesFewClients(t *testing.T) {
	for _, n := range []int{2, 3, 4, 5, 7, 10, 33, 100, 128, 129, 130, 200, 256, 257, 258, 513} {
		extra, worst, largest := 0.0, 0.0, 0.0
		tries := 0
		rounds, leaving := 4, 4
		if n > 300 {
			rounds, leaving = 1, 2
		}
		for seed := range uint64(rounds) {
			all := population(n, seed)
			before := Table(all, true, false)
			for _, c := range counts(before, n) {
				largest = max(largest, float64(c*n)/float64(len(before)))
			}
			for gone := range min(n, leaving) {
				gone = gone * n / min(n, leaving)
				rest := slices.Delete(slices.Clone(all), gone, gone+1)
				after := Table(rest, true, false)
				moved, size := 0, max(len(before), len(after))
				for s := range size {
					a, b := before[s*len(before)/size], after[s*len(after)/size]
					if all[a] != rest[b] {
						moved++
					}
				}
				more := float64(moved)/float64(size) - 1/float64(n)
				extra, worst, tries = extra+more, max(worst, more), tries+1
			}
		}
		t.Logf("%4d endpoints, %5d slots: %.2f %% more than their share move, at most %.2f %%; largest part %.2f", n,
			service.HashedSlots(n), 100*extra/float64(tries), 100*worst, largest)
		if worst > 0.02 {
			t.Errorf("%d endpoints: %.2f %% more move than the share", n, 100*worst)
		}
	}
}

// TestTable_ExactShares: in a table without hashing, the share of each endpoint is within one slot of its weight; the
// log shows where it is exact.
func TestTable_ExactShares(t *testing.T) {
	for _, weights := range [][]uint16{{1, 3, 6}, {2, 6, 12}, {0, 0, 0, 0, 0}, {5}, {100, 100, 1}, {65535, 1}, {1000, 999, 997, 3}} {
		all := population(len(weights), 1)
		total := 0
		for i := range weights {
			all[i].Weight = weights[i]
			total += all[i].Share()
		}
		table := Table(all, false, false)
		exact := true
		for i, n := range counts(table, len(all)) {
			want := float64(all[i].Share()*len(table)) / float64(total)
			exact = exact && float64(n) == want
			if off := float64(n) - want; off >= 1 || off <= -1 {
				t.Errorf("weights %v: endpoint %d has %d of %d slots, want %.1f", weights, i, n, len(table), want)
			}
		}
		t.Logf("weights %v: %d slots, exact: %v", weights, len(table), exact)
	}
}

// TestTable_SizeAndTimeBounded: the size of every table is limited; the log shows the time to make it.
func TestTable_SizeAndTimeBounded(t *testing.T) {
	for _, n := range append(testenv.Variants(4096, 20_000), 10, 1000) {
		all := population(n, 3)
		for _, hashed := range []bool{true, false} {
			began := time.Now()
			table := Table(all, hashed, false)
			t.Logf("%d endpoints, hashed %v: %d slots, %v", n, hashed, len(table), time.Since(began))
			if len(table) > max(service.HashedSlots(n), n) || hashed && len(table) > service.HashedSlotsMax {
				t.Errorf("%d endpoints: %d slots", n, len(table))
			}
		}
	}
}

// TestTable_AnyWeights: for random weights, no endpoint exceeds its share of a table by more than the limit.
func TestTable_AnyWeights(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		all := population(1+r.IntN(60), r.Uint64N(1000))
		total := 0
		for i := range all {
			all[i].Weight = uint16(r.Uint32() >> (16 + r.IntN(16)))
			total += all[i].Share()
		}
		if size := len(Table(all, false, true)); size != service.HashedSlots(len(all)) {
			t.Errorf("%d endpoints: a steady table has %d slots", len(all), size)
		}
		for _, kind := range []struct{ hashed, steady bool }{{true, false}, {false, false}, {false, true}} {
			hashed := kind.hashed
			table := Table(all, kind.hashed, kind.steady)
			for i, n := range counts(table, len(all)) {
				if part := float64(all[i].Share()) / float64(total); float64(n) > float64(len(table))*(part+excess)+2 {
					t.Errorf("hashed %v: endpoint %d of %d has %d of %d slots, its part is %v", hashed, i, len(all), n, len(table), part)
				}
			}
		}
	}
}

// TestTable_DependsOnSetAlone: a table depends on the set of endpoints and not on their order.
func TestTable_DependsOnSetAlone(t *testing.T) {
	all := population(30, 5)
	all[3].Weight = 7
	for _, hashed := range []bool{true, false} {
		want := Table(all, hashed, false)
		other := slices.Clone(all)
		rand.Shuffle(len(other), func(i, j int) { other[i], other[j] = other[j], other[i] })
		for s, e := range Table(other, hashed, false) {
			if other[e] != all[want[s]] {
				t.Fatalf("slot %d has %v and %v", s, other[e], all[want[s]])
			}
		}
	}
}

// TestJenkins_BoundaryValues checks Jenkins and Scale at the ends of their ranges. TestBalancing_NodesAgreeOnEndpoint
// compares Jenkins with the kernel.
func TestJenkins_BoundaryValues(t *testing.T) {
	if got := Jenkins(nil, 0); got != 0xdeadbeef {
		t.Errorf("%#x", got)
	}
	if Scale(1<<31, 10) != 5 || Scale(math.MaxUint32, 10) != 9 {
		t.Error("Scale")
	}
}

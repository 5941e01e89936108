// SPDX-License-Identifier: Apache-2.0

// Package slots assigns the endpoints of a Service to the slots of a table. Rules pick an
// endpoint by a random slot, and a change of the endpoints moves few of them. The nftables and userspace modes use it.
//
// Goals: (1) the table depends on the set of endpoints alone, never on history, so that a
// restarted process finds what its predecessor wrote; (2) adding or removing an endpoint
// moves a small number of others that does not grow with the Service; (3) every endpoint is
// picked equally often; (4) the number of different table sizes grows with the logarithm of
// the largest Service.
//
// A table has more slots than endpoints (4, 2), and an empty slot leads to another try (3).
// Endpoints have a rank by hash. In the order of rank each takes the first free slot on its
// own walk (1). An endpoint that leaves frees its slot for the first of lower rank
// that prefers it, which frees another one in turn; at the bounded load of a table that
// chain is short (2). The first in rank has slot 0, so that a last try always finds one.
package slots

import (
	"cmp"
	"math"
	"math/bits"
	"net/netip"
	"slices"

	"github.com/sluice-proxy/sluice/service"
)

// Assign returns the slot of each endpoint in a table of Size(len(endpoints)) slots.
// Endpoints are distinct; their order does not matter.
func Assign(endpoints []service.Endpoint) []int {
	assigned := make([]int, len(endpoints))
	if len(endpoints) <= 1 {
		return assigned
	}
	order := make([]ranked, len(endpoints))
	for i := range endpoints {
		order[i] = ranked{hash: hash(endpoints[i].AddrPort), index: i}
	}
	slices.SortFunc(order, func(a, b ranked) int {
		if c := cmp.Compare(a.hash, b.hash); c != 0 {
			return c
		}
		return endpoints[a.index].AddrPort.Compare(endpoints[b.index].AddrPort)
	})
	// The first has slot 0; the others share the rest.
	rest := Size(len(endpoints)) - 1
	taken := make([]bool, rest)
	for _, r := range order[1:] {
		at := r.firstFree(taken)
		taken[at] = true
		assigned[r.index] = at + 1
	}
	return assigned
}

// ranked is an endpoint with its rank. The smaller hash comes first.
type ranked struct {
	hash  uint64
	index int
}

// walkMax is the number of random places that an endpoint tries before it takes the next
// free one from there. At a fill of seven eighths one in 500 gets that far.
const walkMax = 48

// firstFree returns the first free place on the endpoint's walk.
func (r ranked) firstFree(taken []bool) int {
	at := 0
	for i := range uint64(walkMax) {
		at = place(mix(r.hash+i*golden), len(taken))
		if !taken[at] {
			return at
		}
	}
	for taken[at] {
		at = (at + 1) % len(taken)
	}
	return at
}

// place maps a hash to one of n places as linear hashing does (Litwin, 1980): when n grows,
// only hashes whose new place is among the added ones move.
func place(h uint64, n int) int {
	power := uint64(1) << bits.Len(uint(n-1)) // the least power of two ≥ n
	if at := h & (power - 1); at < uint64(n) {
		return int(at)
	}
	return int(h & (power/2 - 1))
}

// golden is 2^64 divided by the golden ratio.
const golden = 0x9e3779b97f4a7c15

// hash is the same in every process and release: one must find what another wrote.
func hash(a netip.AddrPort) uint64 {
	b := a.Addr().As16()
	h := uint64(a.Port()) * golden
	for i := range 2 {
		var word uint64
		for _, c := range b[i*8 : i*8+8] {
			word = word<<8 | uint64(c)
		}
		h = mix(h ^ word)
	}
	return h
}

// mix is the finalizer of splitmix64 (Steele, Lea and Flood, 2014).
func mix(h uint64) uint64 {
	h += golden
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}

// Size returns the number of slots for a number of endpoints: the smallest of 1, the even
// numbers up to 16, and then four sizes per doubling (20, 24, 28, 32, 40, …) that has enough
// capacity. Tables up to 16 may be full, because little can move in them. Larger ones are
// filled to at most seven eighths.
//
// Invariant: endpoints ≤ Size(endpoints) ≤ endpoints · 10/7 + 2.
func Size(endpoints int) int {
	for size := 1; ; size = next(size) {
		if endpoints <= capacity(size) {
			return size
		}
	}
}

// fullMax is the largest table that may be full.
const fullMax = 16

// next returns the next larger size.
func next(size int) int {
	switch {
	case size == 1:
		return 2
	case size < fullMax:
		return size + 2
	}
	power := fullMax
	for power*2 <= size {
		power *= 2
	}
	return size + power/4
}

// capacity returns the largest number of endpoints that a table may have.
func capacity(size int) int {
	if size <= fullMax {
		return size
	}
	return size * 7 / 8
}

// fewest returns the smallest number of endpoints for which a table of a size is used.
func fewest(size int) int {
	before := 0
	for s := 1; s < size; s = next(s) {
		before = capacity(s)
	}
	return before + 1
}

// bias bounds how much more often than its fair share the endpoint in slot 0 is picked.
const bias = 0.01

// Tries returns how many random slots to try before the last try, which is slot 0: as many
// as keep the bias at any fill. A size whose tables are always full needs one.
func Tries(size int) int {
	most := 1
	for n := fewest(size); n <= capacity(size); n++ {
		if n == size {
			continue
		}
		// All tries miss with probability miss^tries. Slot 0 then gets what n endpoints
		// should share.
		miss := 1 - float64(n)/float64(size)
		most = max(most, int(math.Ceil(math.Log(bias/float64(n))/math.Log(miss))))
	}
	return most
}

// AlwaysFull reports whether tables of the size have no empty slots, so that no last try is
// needed.
func AlwaysFull(size int) bool { return fewest(size) == size }

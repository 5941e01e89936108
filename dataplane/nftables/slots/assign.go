package slots

import (
	"cmp"
	"math/bits"
	"net/netip"
	"slices"

	"github.com/sluice-proxy/sluice/service"
)

// Assign gives the slot of each endpoint in a table of Size(len(endpoints))
// slots. Endpoints are distinct; their order does not matter.
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

// ranked is an endpoint with its rank: the smaller hash comes first.
type ranked struct {
	hash  uint64
	index int
}

// walkMax is the number of random places that an endpoint looks at before it
// takes the next free one from there. At a fill of seven eighths one in 500
// comes so far.
const walkMax = 48

// firstFree gives the first free place on the endpoint's walk.
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

// place maps a hash to one of n places as linear hashing does (Litwin, 1980):
// when n grows, only hashes whose new place is among the added ones move.
func place(h uint64, n int) int {
	power := uint64(1) << bits.Len(uint(n-1)) // the least power of two ≥ n
	if at := h & (power - 1); at < uint64(n) {
		return int(at)
	}
	return int(h & (power/2 - 1))
}

// golden is 2^64 divided by the golden ratio.
const golden = 0x9e3779b97f4a7c15

// hash is the same in every process and for ever: what one process has written
// another one has to find.
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

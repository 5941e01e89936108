// SPDX-License-Identifier: Apache-2.0

package slots

import (
	"cmp"
	"container/heap"
	"math"
	"math/bits"
	"slices"

	"github.com/sluice-proxy/sluice/service"
)

// This file makes full tables, for Services that hash, take turns or have weights. Each slot has an endpoint,
// and the number of an endpoint's slots follows from its share. The slots choose: a slot ranks endpoints by
// rendezvous hashing (Thaler and Ravishankar, 1998), and takes the best one that has room. So a table depends
// only on the set of endpoints, and adding or removing one endpoint changes few of the others' slots.

const (
	// hashedEndpoints is how many endpoints a Service that hashes uses: those with the lowest hashes.
	hashedEndpoints = service.HashedSlotsMax / 4
	// exactMax is the size up to which a table that is not hashed is made as large as exact shares require.
	exactMax = 1 << 10
	// workMax limits the slots times the endpoints of a table whose slots choose, except for hashed tables.
	workMax = 1 << 22
)

// Table returns the index of the endpoint of each slot of a full table. If hashed is set, a hash of the client selects
// the slot, and the table has service.HashedSlots slots. Otherwise the shares are exact if exactMax slots are enough.
// If they are not, or if steady is set, the table is as large as a hashed one, because that size does not depend on the
// weights. A table has at least one slot for each endpoint that it uses. Table must not be called without endpoints.
func Table(endpoints []service.Endpoint, hashed, steady bool) []int {
	f := filling{endpoints: make([]filler, len(endpoints))}
	total, common := 0, 0
	for i := range endpoints {
		share := endpoints[i].Share()
		total += share
		common = gcd(common, share)
		f.endpoints[i] = filler{hash: mix(hash(endpoints[i].AddrPort)), index: i, share: float64(share)}
	}
	slices.SortFunc(f.endpoints, func(a, b filler) int { return cmp.Or(cmp.Compare(a.hash, b.hash), cmp.Compare(a.index, b.index)) })
	switch {
	case hashed:
		if len(f.endpoints) > hashedEndpoints {
			f.endpoints = f.endpoints[:hashedEndpoints]
			total = 0
			for i := range f.endpoints {
				total += int(f.endpoints[i].share)
			}
		}
		f.table = make([]int, service.HashedSlots(len(endpoints)))
		f.roomy(float64(total))
	case !steady && total/common <= max(exactMax, len(endpoints)):
		f.table = make([]int, total/common)
		f.exact(total)
	default:
		f.table = make([]int, max(service.HashedSlots(len(endpoints)), len(endpoints)))
		f.exact(total)
	}
	if !hashed && len(f.table)*len(f.endpoints) > workMax {
		f.deal()
	} else {
		f.fill()
	}
	return f.table
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// filling is the work on one table.
type filling struct {
	endpoints []filler
	table     []int
}

// filler is an endpoint and the number of slots that it may still take.
type filler struct {
	hash  uint64
	index int
	share float64
	room  int
}

// exact divides all slots among the endpoints, in proportion to their shares. It rounds the running sum, so the
// remainder is spread over the endpoints.
func (f *filling) exact(total int) {
	before, given := 0, 0
	for i := range f.endpoints {
		e := &f.endpoints[i]
		before += int(e.share)
		e.room = before*len(f.table)/total - given
		given += e.room
	}
}

const (
	// The part of an endpoint may exceed its share by excess (a fraction of all clients) or excessMax (of the share),
	// whichever is less. Higher values make the parts less equal; lower ones move more clients if an endpoint leaves.
	excess, excessMax = 0.01, 0.25
)

// roomy gives the endpoints a little more room than there are slots.
func (f *filling) roomy(total float64) {
	for i := range f.endpoints {
		e := &f.endpoints[i]
		part := e.share / total
		room := float64(len(f.table)) * min(part+excess, part*(1+excessMax))
		// The hash decides how to round. Otherwise, the room of all endpoints could change when one leaves.
		e.room = max(int(room+float64(mix(e.hash)>>11)/(1<<53)), 1)
	}
}

// fill lets the slots choose, in the order of their distances to the choice. A slot whose choice has no room
// left chooses again.
func (f *filling) fill() {
	wishes := make(wishes, len(f.table))
	for s := range f.table {
		wishes[s] = f.choose(s)
	}
	heap.Init(&wishes)
	for len(wishes) > 0 {
		w := &wishes[0]
		full := math.IsInf(w.distance, 1) // because of rounding, there is less room than there are slots
		if e := &f.endpoints[w.endpoint]; e.room > 0 || full {
			e.room--
			f.table[w.slot] = e.index
			heap.Pop(&wishes)
			continue
		}
		*w = f.choose(int(w.slot))
		heap.Fix(&wishes, 0)
	}
}

// deal gives the slots to the endpoints in turn.
func (f *filling) deal() {
	for s := 0; s < len(f.table); {
		for i := range f.endpoints {
			if e := &f.endpoints[i]; e.room > 0 && s < len(f.table) {
				e.room--
				f.table[s] = e.index
				s++
			}
		}
	}
}

// wish is an endpoint that a slot prefers. Less distance is better.
type wish struct {
	distance       float64
	slot, endpoint int32
}

// choose returns the wish of a slot among the endpoints that have room: the one with the least of exponentially
// distributed distances, whose rates are the shares. So each endpoint is chosen in proportion to its share.
func (f *filling) choose(slot int) wish {
	best := wish{distance: math.Inf(1), slot: int32(slot)}
	key := f.key(slot)
	for i := range f.endpoints {
		e := &f.endpoints[i]
		if e.room == 0 {
			continue
		}
		high, low := bits.Mul64(e.hash^key, golden)
		missing := float64((high^low)>>11) / (1 << 53) // 1 - u
		if missing >= best.distance*e.share {
			continue // -log(u) is no less than 1 - u
		}
		if d := -math.Log1p(-missing) / e.share; d < best.distance {
			best.distance, best.endpoint = d, int32(i)
		}
	}
	return best
}

// key returns the key of a slot for ranking endpoints. The kernel scales a hash to the number of slots, so the halves
// of slot n are slots 2n and 2n+1 of a table of twice the size. When a table doubles, both halves have the key of the
// whole slot. As endpoints are added, more and more of the second halves get a separate key, until the table doubles
// again. So an added endpoint never moves many clients.
func (f *filling) key(slot int) uint64 {
	size := len(f.table)
	if size&(size-1) != 0 || size <= service.HashedSlotsMin {
		return mix(uint64(slot) + golden)
	}
	begin := size / 2 / service.SlotsPerEndpoint // up to here, half the table is enough
	parted := float64(len(f.endpoints)-begin) / float64(begin)
	for size > service.HashedSlotsMin {
		whole := mix(mix(uint64(size)) + uint64(slot/2))
		if slot%2 == 1 && float64(whole>>11)/(1<<53) < parted {
			return mix(uint64(slot) + uint64(size)<<32)
		}
		size, slot, parted = size/2, slot/2, 1
	}
	return mix(uint64(slot) + golden)
}

// wishes is a heap, with the least distance first.
type wishes []wish

func (w wishes) Len() int      { return len(w) }
func (w wishes) Swap(i, j int) { w[i], w[j] = w[j], w[i] }
func (w wishes) Less(i, j int) bool {
	return w[i].distance < w[j].distance || w[i].distance == w[j].distance && w[i].slot < w[j].slot
}

// Push is never called: the heap only shrinks.
func (w *wishes) Push(any) { panic("slots: a wish is added") }

// Pop implements heap.Interface.
func (w *wishes) Pop() any {
	*w = (*w)[:len(*w)-1]
	return nil
}

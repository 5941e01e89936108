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

// This file has full tables: those of Services that hash, take turns or have weights. Each slot has an
// endpoint, and each endpoint as many slots as its share wants. The slots choose: a slot prefers endpoints
// by rendezvous hashing (Thaler and Ravishankar, 1998), and takes the best one that has room. So a table depends
// on the set of endpoints alone, and of two tables that differ by one endpoint few other slots differ.

const (
	// hashedEndpoints is how many endpoints of a Service that hashes are used: those of lowest rank by hash.
	hashedEndpoints = service.HashedSlotsMax / 4
	// exactMax is the largest table of another Service whose shares are exact.
	exactMax = 1 << 10
	// workMax bounds the slots times the endpoints of a table whose slots choose, except of hashed ones.
	workMax = 1 << 22
)

// Table returns the endpoint of each slot of a full table, by its index. hashed says that the slot follows from
// the client: the table then has service.HashedSlots. Otherwise the shares are exact if exactMax slots are
// enough, and the table is otherwise as large as a hashed one. steady asks for that size in any case, as it does
// not depend on the weights. A table is never smaller than the number of endpoints that are used. It must not be called without endpoints.
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

// exact gives the endpoints as many slots as there are, in proportion to their shares. What does not divide
// goes to the first ones.
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
	// excess is by how much of all clients the part of an endpoint may exceed its share, and excessMax by how
	// much of the share. More makes the parts less equal, and less moves more clients when an endpoint leaves.
	excess, excessMax = 0.01, 0.25
)

// roomy gives the endpoints a little more room than there are slots.
func (f *filling) roomy(total float64) {
	for i := range f.endpoints {
		e := &f.endpoints[i]
		part := e.share / total
		room := float64(len(f.table)) * min(part+excess, part*(1+excessMax))
		// Rounded up or down by the hash: otherwise, all change when one endpoint leaves.
		e.room = max(int(room+float64(mix(e.hash)>>11)/(1<<53)), 1)
	}
}

// fill lets the slots choose, those that are surest of their choice first. One whose choice has no room
// left chooses again.
func (f *filling) fill() {
	wishes := make(wishes, len(f.table))
	for s := range f.table {
		wishes[s] = f.choose(s)
	}
	heap.Init(&wishes)
	for len(wishes) > 0 {
		w := &wishes[0]
		full := math.IsInf(w.distance, 1) // rounding has left less room than there are slots
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

// key returns what a slot hashes. The kernel scales a hash to the number of slots, so the two halves of a slot are
// slots 2n and 2n+1 of a table of twice the size. When a table doubles, the halves want what the whole one wanted. As
// endpoints are added, more and more of the second halves get a wish of their own, until the table doubles again. So
// no number of endpoints moves many clients.
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

// wishes is a heap, the surest first.
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

package slots

import "math"

// Size gives the number of slots for a number of endpoints: the smallest of 1,
// the even numbers up to 16, and then four sizes per doubling (20, 24, 28, 32,
// 40, …) that is not filled too far. Tables up to 16 may be full, since little
// can move in them; larger ones are filled to at most seven eighths.
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

// next gives the size after a size.
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

// capacity is the largest number of endpoints that a table may hold.
func capacity(size int) int {
	if size <= fullMax {
		return size
	}
	return size * 7 / 8
}

// fewest is the smallest number of endpoints that a table is used for.
func fewest(size int) int {
	before := 0
	for s := 1; s < size; s = next(s) {
		before = capacity(s)
	}
	return before + 1
}

// bias bounds how much more often than the others the endpoint in slot 0 is
// picked, relative to its fair share.
const bias = 0.01

// Tries gives how many random slots to look into before the last try, which is
// slot 0: as many as keep the bias, whatever the fill. A size whose tables are
// always full needs one.
func Tries(size int) int {
	most := 1
	for n := fewest(size); n <= capacity(size); n++ {
		if n == size {
			continue
		}
		// All tries miss with probability miss^tries; slot 0 then gets what
		// n endpoints should have shared.
		miss := 1 - float64(n)/float64(size)
		most = max(most, int(math.Ceil(math.Log(bias/float64(n))/math.Log(miss))))
	}
	return most
}

// AlwaysFull tells that a table of the size has no empty slots, so that no last
// try is needed.
func AlwaysFull(size int) bool { return fewest(size) == size }

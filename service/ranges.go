// SPDX-License-Identifier: Apache-2.0

package service

import (
	"net/netip"
	"slices"
)

// MergeRanges returns the fewest prefixes with the same addresses as those given, sorted: those inside
// another one are left out, and two halves of a prefix become that prefix.
func MergeRanges(prefixes []netip.Prefix) []netip.Prefix {
	sorted := make([]netip.Prefix, 0, len(prefixes))
	for _, p := range prefixes {
		sorted = append(sorted, p.Masked())
	}
	slices.SortFunc(sorted, func(a, b netip.Prefix) int {
		if c := a.Addr().Compare(b.Addr()); c != 0 {
			return c
		}
		return a.Bits() - b.Bits()
	})
	var kept []netip.Prefix
	for _, p := range sorted {
		// In this order a prefix follows the one that contains it, and no two kept ones
		// overlap. So only the last kept one can contain it, or be its other half.
		if n := len(kept); n > 0 && kept[n-1].Overlaps(p) {
			continue
		}
		kept = append(kept, p)
		for n := len(kept); n > 1 && halves(kept[n-2], kept[n-1]); n-- {
			kept = kept[:n-1]
			kept[n-2] = netip.PrefixFrom(kept[n-2].Addr(), kept[n-2].Bits()-1)
		}
	}
	return kept
}

// halves reports whether two prefixes are the lower and the upper half of another one.
func halves(lower, upper netip.Prefix) bool {
	if lower.Bits() != upper.Bits() || lower.Bits() == 0 || lower.Addr().BitLen() != upper.Addr().BitLen() {
		return false
	}
	whole := netip.PrefixFrom(lower.Addr(), lower.Bits()-1)
	return whole.Masked() == whole && whole.Contains(upper.Addr())
}

// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"cmp"
	"math"
	"slices"
)

// NearestRank returns the smallest of the values that this percentage of count does not exceed. Values that are missing
// are larger than all others; it reports false for one of them.
func NearestRank[T cmp.Ordered](values []T, count, percent int) (value T, ok bool) {
	rank := max(1, (count*percent+99)/100)
	if rank > len(values) {
		return value, false
	}
	return slices.Sorted(slices.Values(values))[rank-1], true
}

// Percentile is the nearest rank of all values, and 0 of none.
func Percentile[T cmp.Ordered](values []T, percent int) T {
	value, _ := NearestRank(values, len(values), percent)
	return value
}

// Quantile returns a quantile of the values, between two of them if needed, and 0 of none.
func Quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	at := q * float64(len(sorted)-1)
	below := int(math.Floor(at))
	above := min(below+1, len(sorted)-1)
	share := at - float64(below)
	return (1-share)*sorted[below] + share*sorted[above]
}

// Sum returns the sum of a value of each item.
func Sum[I any, T int | float64](items []I, of func(I) T) (sum T) {
	for _, item := range items {
		sum += of(item)
	}
	return sum
}

// Spread returns at most so many items, at equal distances, the first and the last among them.
func Spread[T any](items []T, most int) []T {
	if len(items) <= most {
		return items
	}
	chosen := make([]T, most)
	for i := range chosen {
		chosen[i] = items[i*(len(items)-1)/max(1, most-1)]
	}
	return chosen
}

package result

import (
	"slices"
	"time"
)

// percentile returns the smallest of the values that this percentage of count does not exceed (the
// nearest rank). It reports false when that is one of those that values lacks.
func percentile(values []time.Duration, count, percent int) (time.Duration, bool) {
	if count == 0 {
		return 0, false
	}
	rank := max(1, (count*percent+99)/100)
	if rank > len(values) {
		return 0, false
	}
	return slices.Sorted(slices.Values(values))[rank-1], true
}

// median returns the middle of the values, or the mean of the two in the middle.
func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	if len(sorted) == 0 {
		return 0
	}
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}

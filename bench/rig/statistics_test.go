// SPDX-License-Identifier: Apache-2.0

package rig

import (
	"slices"
	"testing"
)

func TestNearestRank(t *testing.T) {
	values := []int{40, 10, 30, 20}
	for percent, want := range map[int]int{0: 10, 25: 10, 26: 20, 50: 20, 75: 30, 99: 40, 100: 40} {
		if got := Percentile(values, percent); got != want {
			t.Errorf("p%d: %v, want %d", percent, got, want)
		}
	}
	if !slices.Equal(values, []int{40, 10, 30, 20}) {
		t.Errorf("the values are in another order: %v", values)
	}
	if _, ok := NearestRank([]int{}, 0, 50); ok || Percentile([]int{}, 50) != 0 {
		t.Error("there is a percentile of nothing")
	}
	if _, ok := NearestRank(values, 5, 100); ok {
		t.Error("a missing value is not the largest")
	}
}

func TestQuantile(t *testing.T) {
	for _, c := range []struct {
		values  []float64
		q, want float64
	}{
		{nil, 0.5, 0}, {[]float64{3}, 0.25, 3}, {[]float64{4, 1, 2}, 0.5, 2}, {[]float64{8, 1, 2, 4}, 0.5, 3},
		{[]float64{1, 2, 3, 4}, 0.75, 3.25}, {[]float64{1, 2}, 1, 2},
	} {
		if got := Quantile(c.values, c.q); got != c.want {
			t.Errorf("quantile %v of %v is %v, want %v", c.q, c.values, got, c.want)
		}
	}
}

func TestSpread(t *testing.T) {
	items := []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}
	for most, want := range map[int][]int{1: {0}, 2: {0, 9}, 4: {0, 3, 6, 9}, 10: items, 20: items} {
		if got := Spread(items, most); !slices.Equal(got, want) {
			t.Errorf("%d of 10: %v, want %v", most, got, want)
		}
	}
}

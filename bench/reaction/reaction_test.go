package main

import (
	"testing"
	"time"
)

func TestQuantileIsOneOfTheValues(t *testing.T) {
	hundred := make([]time.Duration, 100)
	for i := range hundred {
		hundred[i] = time.Duration(i + 1)
	}
	for _, c := range []struct {
		values []time.Duration
		q      float64
		want   time.Duration
	}{
		{hundred, 0.5, 50}, {hundred, 0.99, 99}, {hundred, 1, 100},
		{hundred[:1], 0.5, 1}, {hundred[:2], 0.5, 1}, {hundred[:3], 0.99, 3}, {nil, 0.5, 0},
	} {
		if got := quantile(c.values, c.q); got != c.want {
			t.Errorf("quantile %v of %d values is %d, want %d", c.q, len(c.values), got, c.want)
		}
	}
}

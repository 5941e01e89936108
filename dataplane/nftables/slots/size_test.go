package slots

import (
	"math"
	"testing"
)

func TestSize(t *testing.T) {
	for _, c := range []struct{ endpoints, size int }{
		{0, 1}, {1, 1}, {2, 2}, {3, 4}, {4, 4}, {5, 6}, {8, 8}, {9, 10}, {10, 10}, {11, 12},
		{14, 14}, {15, 16}, {16, 16}, {17, 20}, {18, 24}, {50, 64}, {56, 64}, {57, 80}, {5000, 6144},
	} {
		if got := Size(c.endpoints); got != c.size {
			t.Errorf("Size(%d) = %d, want %d", c.endpoints, got, c.size)
		}
	}
}

func TestSizeIsBounded(t *testing.T) {
	sizes := map[int]bool{}
	for n := 1; n <= 10000; n++ {
		size := Size(n)
		sizes[size] = true
		if n > size || size > n*10/7+2 {
			t.Errorf("Size(%d) = %d", n, size)
		}
	}
	if len(sizes) > 50 {
		t.Errorf("%d different sizes up to 10,000 endpoints, want four per doubling and ten small ones", len(sizes))
	}
}

// TestTriesKeepTheBias works out how often slot 0 is picked.
func TestTriesKeepTheBias(t *testing.T) {
	for n := 1; n <= 6000; n++ {
		size := Size(n)
		last := math.Pow(1-float64(n)/float64(size), float64(Tries(size)))
		first := (1-last)/float64(n) + last
		if over := first*float64(n) - 1; over > 2*bias {
			t.Errorf("%d endpoints: slot 0 is picked %.3f%% too often", n, 100*over)
		}
		if AlwaysFull(size) && n != size {
			t.Errorf("a table of %d slots holds %d endpoints", size, n)
		}
	}
	for _, size := range []int{1, 2} {
		if Tries(size) != 1 || !AlwaysFull(size) {
			t.Errorf("a table of %d slots needs %d tries, want 1", size, Tries(size))
		}
	}
}

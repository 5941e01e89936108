package result

import (
	"slices"
	"testing"
	"time"
)

func milliseconds(values ...int) (all []time.Duration) {
	for _, v := range values {
		all = append(all, time.Duration(v)*time.Millisecond)
	}
	return all
}

func TestPercentile(t *testing.T) {
	values := milliseconds(40, 10, 30, 20)
	for percent, want := range map[int]int{0: 10, 25: 10, 26: 20, 50: 20, 75: 30, 99: 40, 100: 40} {
		if got, ok := percentile(values, len(values), percent); !ok || got != time.Duration(want)*time.Millisecond {
			t.Errorf("p%d: %v, %v; want %d ms", percent, got, ok, want)
		}
	}
	if !slices.Equal(values, milliseconds(40, 10, 30, 20)) {
		t.Errorf("the values are in another order: %v", values)
	}
	if _, ok := percentile(nil, 0, 50); ok {
		t.Error("there is a percentile of nothing")
	}
}

// What did not end counts as longer than everything that did.
func TestDistributeWithSomeThatDidNotEnd(t *testing.T) {
	d := Distribute(milliseconds(1, 2, 3), 1)
	if d.Count != 4 || d.Beyond != 1 || len(d.Percentiles) != 76 || d.Percentiles[50] != 2 || d.Percentiles[75] != 3 {
		t.Errorf("%+v; want 75 per cent within 3 ms, and nothing beyond", d)
	}
	if d := Distribute(milliseconds(7), 0); len(d.Percentiles) != 101 || d.Percentiles[0] != 7 || d.Percentiles[100] != 7 {
		t.Errorf("one value: %+v", d)
	}
	if d := Distribute(nil, 2); len(d.Percentiles) != 0 {
		t.Errorf("nothing ended: %+v", d)
	}
}

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   float64
	}{{nil, 0}, {[]float64{3}, 3}, {[]float64{9, 1, 2}, 2}, {[]float64{4, 1, 2, 9}, 3}} {
		if got := median(c.values); got != c.want {
			t.Errorf("%v: %v, want %v", c.values, got, c.want)
		}
	}
}

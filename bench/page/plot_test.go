package main

import (
	"slices"
	"testing"
)

func TestAxes(t *testing.T) {
	log := newAxis([]float64{3, 450}, true, 100)
	if got := log.ticks(); !slices.Equal(got, []float64{1, 10, 100, 1000}) {
		t.Errorf("ticks %v", got)
	}
	if at := log.at(10); at < 33.3 || at > 33.4 {
		t.Errorf("10 is at %v of 100, want a third", at)
	}
	linear := newAxis([]float64{0.7, 36}, false, 50)
	if got := linear.ticks(); !slices.Equal(got, []float64{0, 10, 20, 30, 40, 50}) || linear.at(25) != 25 {
		t.Errorf("ticks %v", got)
	}
	if one := newAxis([]float64{10}, true, 100); one.low != 10 || one.high != 100 {
		t.Errorf("a single value: %+v", one)
	}
}

func TestGrouped(t *testing.T) {
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567"} {
		if got := grouped(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
}

func TestWrap(t *testing.T) {
	if got := wrap("  a\nb   c "); got != "a b c" {
		t.Errorf("%q", got)
	}
}

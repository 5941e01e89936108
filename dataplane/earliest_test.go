package dataplane

import (
	"testing"
	"time"
)

func TestEarliestIgnoresZeroTimes(t *testing.T) {
	var none time.Time
	early, late := time.Unix(1, 0), time.Unix(2, 0)
	for _, c := range []struct{ a, b, want time.Time }{
		{none, none, none}, {none, late, late}, {late, none, late}, {early, late, early}, {late, early, early},
	} {
		if got := Earliest(c.a, c.b); !got.Equal(c.want) {
			t.Errorf("Earliest(%v, %v) = %v, want %v", c.a, c.b, got, c.want)
		}
	}
}

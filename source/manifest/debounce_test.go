package manifest

import (
	"testing"
	"time"
)

func TestDebounce(t *testing.T) {
	start := time.Unix(1000, 0)
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	tests := map[string]struct {
		events []int // milliseconds
		due    int
	}{
		"one event":                           {[]int{0}, 20},
		"quiet starts at the last event":      {[]int{0, 15, 30}, 50},
		"never later than the limit":          {[]int{0, 50, 100, 150, 190}, 200},
		"a late event is within the limit":    {[]int{0, 180}, 200},
		"the limit counts from the first one": {[]int{100, 120}, 140},
	}
	for name, test := range tests {
		d := debounce{quiet: 20 * time.Millisecond, limit: 200 * time.Millisecond}
		for _, event := range test.events {
			d.touch(at(event))
		}
		if due, ok := d.due(); !ok || !due.Equal(at(test.due)) {
			t.Errorf("%s: due at %s, want %s", name, due.Sub(start), at(test.due).Sub(start))
		}
		d.reset()
		if _, ok := d.due(); ok {
			t.Errorf("%s: still due after reset", name)
		}
	}
}

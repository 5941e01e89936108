// SPDX-License-Identifier: Apache-2.0

package netnstest

import (
	"testing"
	"time"
)

func TestSlow(t *testing.T) {
	for name, c := range map[string]struct {
		took   time.Duration // by one exchange of 1
		others int           // so many of those with 0 are late
		want   int
	}{
		"an outage of one Service": {7 * time.Second, 2, 1},
		"a busy machine":           {7 * time.Second, 20, 0},
		"a packet sent again":      {3 * time.Second, 0, 0},
	} {
		var s Slow[int]
		begin := time.Unix(1000, 0)
		for i := range 800 {
			e := Exchange{Began: begin.Add(time.Duration(i) * 10 * time.Millisecond)}
			if e.Ended = e.Began; i < c.others {
				e.Ended = e.Began.Add(time.Second)
			}
			s.Note(0, e)
		}
		s.Note(1, Exchange{Began: begin, Ended: begin.Add(c.took)})
		if got := s.Alone(); len(got) != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"slices"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
)

// TestOwnWrites: announcements of our own processes are not foreign, in any order in which a process starts, is
// announced and ends.
func TestOwnWrites(t *testing.T) {
	a := newOwnWrites()
	now := time.Unix(1000, 0)
	foreign := func(port uint32, after time.Duration, want bool) {
		t.Helper()
		if got := a.foreign(port, dataplane.ForeignProcess{PID: int(port)}, now.Add(after)); got != want {
			t.Errorf("port %d after %v: foreign %v, want %v", port, after, got, want)
		}
	}
	end := func(want ...dataplane.ForeignProcess) {
		t.Helper()
		if got := a.end(now); !slices.Equal(got, want) {
			t.Errorf("strangers during the write: %v, want %v", got, want)
		}
	}
	foreign(7, 0, true) // nothing is written
	a.started(8)        // a process that does not write
	foreign(8, 0, true)

	a.begin()
	foreign(9, 0, false) // heard before it is known to be ours
	a.started(9)
	a.started(10)
	end()
	foreign(9, ownAfterwards-1, false)
	foreign(10, ownAfterwards-1, false)
	foreign(10, ownAfterwards, true) // by now the ID may belong to another program

	a.begin()
	a.started(11)
	foreign(11, 0, false)
	foreign(12, 0, false) // said at the end
	end(dataplane.ForeignProcess{PID: 12})
	foreign(12, 0, true)

	a.begin()
	if a.missed() {
		t.Error("a loss during a write is reported before the write ends")
	}
	end(dataplane.ForeignProcess{})
	a.begin()
	end()
	if !a.missed() {
		t.Error("a loss is not reported")
	}
	now = now.Add(time.Minute)
	a.begin()
	end()
	if len(a.own) != 0 || len(a.heard) != 0 {
		t.Errorf("it remembers %v and %v", a.own, a.heard)
	}
}

// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"slices"
	"testing"
)

// TestShrink_KeepsNeededEvents: shrink finds the two events that a fault needs among a hundred.
func TestShrink_KeepsNeededEvents(t *testing.T) {
	var events []event
	for i := range 100 {
		events = append(events, event{do: setSlice, n: i})
	}
	tries := 0
	got := shrink(events, func(e []event) bool {
		tries++
		has := func(n int) bool { return slices.ContainsFunc(e, func(e event) bool { return e.n == n }) }
		return has(17) && has(83)
	}, 1000)
	if len(got) != 2 || got[0].n != 17 || got[1].n != 83 {
		t.Errorf("got %v, want events 17 and 83", got)
	}
	if tries > 100 {
		t.Errorf("%d tries for a pair in a hundred events", tries)
	}
}

// TestShrink_StopsInTime: shrink makes no more attempts than allowed.
func TestShrink_StopsInTime(t *testing.T) {
	tries := 0
	shrink(make([]event, 1000), func([]event) bool { tries++; return false }, 10)
	if tries != 10 {
		t.Errorf("asked %d times, want 10", tries)
	}
}

// TestEvents_PrintAsGo: events are printed as Go code.
func TestEvents_PrintAsGo(t *testing.T) {
	got := literal([]event{{setSlice, 3, 1, 0x2a}, {pause, 0, 0, 512}})
	want := "[]event{\n\t{setSlice, 3, 1, 0x2a},\n\t{pause, 0, 0, 0x200},\n}"
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

package result

import (
	"strings"
	"testing"
)

func exampleFleet() *Fleet {
	return &Fleet{Figures: []FleetFigure{
		{200, "start", "sent", "MiB", 2300}, {200, "start", "took", "s", 60}, {200, "change", "sent", "KiB", 400},
		{100, "start", "sent", "MiB", 1150}, {100, "change", "sent", "KiB", 200}, {0, "change", "sent", "KiB", 1},
	}}
}

func TestPrintFleet(t *testing.T) {
	var b strings.Builder
	if err := exampleFleet().Print(&b); err != nil {
		t.Fatal(err)
	}
	want := `start  0 nodes  100 nodes  200 nodes
sent             1150 MiB   2300 MiB
took                          60.0 s

change   0 nodes  100 nodes  200 nodes
sent    1.00 KiB    200 KiB    400 KiB

`
	if b.String() != want {
		t.Errorf("printed\n%s\nwant\n%s", b.String(), want)
	}
}

func TestExtrapolate(t *testing.T) {
	if got, ok := exampleFleet().Extrapolate("change", "sent", 1000); !ok || got.Value != 2000 || got.Nodes != 1000 {
		t.Errorf("%+v, %v; want 2000 KiB for 1000 nodes", got, ok)
	}
	if _, ok := exampleFleet().Extrapolate("start", "took", 1000); ok {
		t.Error("one size makes a line")
	}
}

package result

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/bench/rig"
)

// example has two rounds, in one of which kube-proxy did not get there.
func example() *Comparison {
	f := func(program string, round int, what, unit string, value float64, beyond bool) Figure {
		return Figure{program, round, "step", what, unit, value, beyond}
	}
	return &Comparison{Figures: []Figure{
		f(Sluice, 1, "took", "s", 0.010, false), f(Sluice, 1, Attempted, "", 100, false), f(Sluice, 1, Lost, "", 0, false),
		f(KubeProxy, 1, "took", "s", 4, false), f(KubeProxy, 1, Attempted, "", 200, false), f(KubeProxy, 1, Lost, "", 3, false),
		f(KubeProxy, 2, "took", "s", 60, true),
		f(Sluice, 2, "took", "s", 0.030, false),
	}}
}

func TestPrint(t *testing.T) {
	var b strings.Builder
	if err := example().Print(&b); err != nil {
		t.Fatal(err)
	}
	want := `step                    sluice         kube-proxy   ratio
took                   20.0 ms  not within 32.0 s  > 1600
connections attempted      100                200
connections lost             0                  3

`
	if b.String() != want {
		t.Errorf("printed\n%s\nwant\n%s", b.String(), want)
	}
}

func TestMedianAndLosses(t *testing.T) {
	c := example()
	if f, ok := c.Median(Sluice, "step", "took"); !ok || f.Value != 0.020 {
		t.Errorf("median %+v, %v; want 20 ms", f, ok)
	}
	if _, ok := c.Median(Sluice, "step", "nothing"); ok {
		t.Error("there is a median of what was not measured")
	}
	if attempted, lost := c.Lost(KubeProxy); attempted != 200 || lost != 3 {
		t.Errorf("%d attempted, %d lost; want 200 and 3", attempted, lost)
	}
}

func TestFigureText(t *testing.T) {
	for want, f := range map[string]Figure{
		"1.50 s": {Unit: "s", Value: 1.5}, "12.3 ms": {Unit: "s", Value: 0.01234}, "0.25 ms": {Unit: "s", Value: 0.00025},
		"150 MiB": {Unit: "MiB", Value: 150.2}, "17": {Value: 17}, "99.9 /s": {Unit: "/s", Value: 99.9},
		"10.0 ms": {Unit: "s", Value: 0.0099999}, "1000 ms": {Unit: "s", Value: 0.9999}, "0 ms": {Unit: "s"},
		"not within 180 s": {Unit: "s", Value: 180, Beyond: true},
	} {
		if got := f.Text(); got != want {
			t.Errorf("%+v: %q, want %q", f, got, want)
		}
	}
}

func TestTheRecordIsReadAsItWasWritten(t *testing.T) {
	file := filepath.Join(t.TempDir(), "r.json")
	machine := rig.ThisMachine(t.Context())
	if machine.Kernel == "" || machine.Processors < 1 || machine.MemoryMiB < 1 || machine.LoadBefore == "" {
		t.Errorf("machine %+v", machine)
	}
	written := &Record{Kind: "compare", Command: "make it", Machine: machine, Data: []byte(`{"Services":7}`)}
	if err := written.Write(file); err != nil {
		t.Fatal(err)
	}
	read, err := ReadRecord(file)
	if err != nil || read.Command != written.Command || read.Machine.Kernel != machine.Kernel || !strings.Contains(string(read.Data), "7") {
		t.Errorf("read %+v, %v", read, err)
	}
}

func milliseconds(values ...int) (all []time.Duration) {
	for _, v := range values {
		all = append(all, time.Duration(v)*time.Millisecond)
	}
	return all
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

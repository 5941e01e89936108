package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestChoose(t *testing.T) {
	for only, want := range map[string][]string{
		"":               all[nftables],
		"react":          {"react-1000", "react-10000", "react-50000"},
		"react-1000":     {"react-1000"}, // a whole name is not a beginning
		"cold-44,resync": {"cold-44000x1", "resync-1000"},
		"hot-7,cold-3x4": {"hot-7", "cold-3x4"},
	} {
		if got, err := choose(nftables, only); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: got %v, %v; want %v", only, got, err, want)
		}
	}
	for _, only := range []string{"warm", "react-0", "react-1000x1", "cold-10x0", "hot-5k", "react-1000,"} {
		if got, err := choose(nftables, only); err == nil {
			t.Errorf("%q: got %v, want an error", only, got)
		}
	}
}

func TestEveryUsualMeasurementCanBeParsed(t *testing.T) {
	for _, name := range slices.Concat(all[nftables], all[iptables]) {
		if m, err := parseMeasurement(name); err != nil || m.String() != name {
			t.Errorf("%q: parsed as %q, %v", name, m, err)
		}
	}
}

// found makes results that meet every target, and lets a test spoil them.
func found(spoil func(few, many *reaction, hot *reaction, cold *coldStart, w *idleWork)) []result {
	replaced := func(services int) reaction {
		return reaction{Services: services, Endpoints: 10, Kind: kinds[0].name, Pace: backToBack,
			P50: 200 * time.Microsecond, P99: time.Millisecond, Objects: 2}
	}
	few, many, hot := replaced(1000), replaced(50000), replaced(1000)
	hot.Kind = "1 of 5000 replaced"
	base := hot
	cold := &coldStart{Services: 10000, Endpoints: 10, Programmed: 2 * time.Second,
		Memory: memory{Resident: 150, Peak: 190, PerServiceKiB: 13}}
	w := &idleWork{Services: 1000, Events: 4000}
	spoil(&few, &many, &hot, cold, w)
	return []result{
		{Name: "react-1000", Reactions: []reaction{few}}, {Name: "react-50000", Reactions: []reaction{many}},
		{Name: "hot-100", Reactions: []reaction{base}}, {Name: "hot-5000", Reactions: []reaction{hot}},
		{Name: "cold-10000x10", Cold: cold},
		{Name: "cold-10000x1", Cold: &coldStart{Services: 10000, Endpoints: 1, Memory: memory{PerServiceKiB: 8.5}}},
		{Name: "resync-1000", Resync: w},
	}
}

func missed(results []result) (targets []string) {
	for _, v := range judge(results) {
		if !v.Met {
			targets = append(targets, v.Target+" "+v.Figure)
		}
	}
	return targets
}

func TestJudge(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(few, many, hot *reaction, cold *coldStart, w *idleWork)
		want  string
	}{
		"all met":      {func(_, _, _ *reaction, _ *coldStart, _ *idleWork) {}, ""},
		"slow":         {func(_, many, _ *reaction, _ *coldStart, _ *idleWork) { many.P50 = 400 * time.Microsecond }, "V2 400µs,V3 2.00"},
		"a slow tail":  {func(_, many, _ *reaction, _ *coldStart, _ *idleWork) { many.P99 = 4 * time.Millisecond }, "V2 4ms"},
		"growing":      {func(few, _, _ *reaction, _ *coldStart, _ *idleWork) { few.P50 = 100 * time.Microsecond }, "V3 2.00"},
		"slow start":   {func(_, _, _ *reaction, cold *coldStart, _ *idleWork) { cold.Programmed = 4 * time.Second }, "V5 4s"},
		"large":        {func(_, _, _ *reaction, cold *coldStart, _ *idleWork) { cold.Memory.Resident = 201 }, "V6 201 MiB"},
		"dear Service": {func(_, _, _ *reaction, cold *coldStart, _ *idleWork) { cold.Memory.PerServiceKiB = -60 }, "V6 16.1 KiB"},
		"all slots":    {func(_, _, hot *reaction, _ *coldStart, _ *idleWork) { hot.Objects = 5000 }, "V10 5000.00 objects"},
		"busy idling":  {func(_, _, _ *reaction, _ *coldStart, w *idleWork) { w.Rendered = 1 }, "V11 1 rendered, 0 batches"},
	} {
		if got := strings.Join(missed(found(c.spoil)), ","); got != c.want {
			t.Errorf("%s: missed %q, want %q", name, got, c.want)
		}
	}
}

func TestJudgeLeavesOutWhatWasNotMeasured(t *testing.T) {
	if got := judge([]result{{Name: "react-10000", Reactions: []reaction{{Services: 10000, Kind: kinds[0].name}}}}); len(got) != 0 {
		t.Errorf("got %+v", got)
	}
}

func TestShowPrintsEveryPart(t *testing.T) {
	var out bytes.Buffer
	results := found(func(_, _, _ *reaction, cold *coldStart, _ *idleWork) { cold.Memory.Resident = 300 })
	results[0].Load = "0.50 0.40 0.30"
	if err := show(&out, results); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"endpoint replaced", "1 of 5000 replaced", "10000 × 10", "4000", "MISSED", "ok", "0.50 0.40 0.30"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in\n%s", want, out.String())
		}
	}
}

package main

import (
	"slices"
	"testing"
)

func TestChoose(t *testing.T) {
	for only, want := range map[string][]string{
		"":               all,
		"react":          {"react-1000", "react-10000", "react-50000"},
		"react-1000":     {"react-1000"}, // a whole name is not a beginning
		"cold-44,resync": {"cold-44000x1", "resync-1000"},
		"hot-7,cold-3x4": {"hot-7", "cold-3x4"},
	} {
		if got, err := choose(only); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: got %v, %v; want %v", only, got, err, want)
		}
	}
	for _, only := range []string{"warm", "react-0", "react-1000x1", "cold-10x0", "hot-5k", "react-1000,"} {
		if got, err := choose(only); err == nil {
			t.Errorf("%q: got %v, want an error", only, got)
		}
	}
}

func TestEveryUsualMeasurementCanBeParsed(t *testing.T) {
	for _, name := range all {
		if m, err := parseMeasurement(name); err != nil || m.String() != name {
			t.Errorf("%q: parsed as %q, %v", name, m, err)
		}
	}
}

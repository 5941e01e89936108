// SPDX-License-Identifier: Apache-2.0

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
		"":                 all[nftables],
		"react":            {"react-1000", "react-10000", "react-50000"},
		"react-1000":       {"react-1000"}, // a whole name is not a beginning
		"cold-5,churn":     {"cold-5000x50", "churn-1000", "churn-10000"},
		"churn-7,cold-3x4": {"churn-7", "cold-3x4"},
	} {
		if got, err := choose(nftables, only); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: got %v, %v; want %v", only, got, err, want)
		}
	}
	for _, only := range []string{"warm", "react-0", "react-1000x1", "cold-10x0", "churn-5k", "react-1000,"} {
		if got, err := choose(nftables, only); err == nil {
			t.Errorf("%q: got %v, want an error", only, got)
		}
	}
}

// TestParseMeasurement_UsualNames: the name of every usual measurement can be parsed and printed again.
func TestParseMeasurement_UsualNames(t *testing.T) {
	for _, name := range slices.Concat(all[nftables], all[iptables]) {
		if m, err := parseMeasurement(name); err != nil || m.String() != name {
			t.Errorf("%q: parsed as %q, %v", name, m, err)
		}
	}
}

// TestShow_EveryPart: show prints reactions, the cold start and the restarts.
func TestShow_EveryPart(t *testing.T) {
	cold := &coldStart{Services: 10000, Endpoints: 10, Programmed: 2 * time.Second, Memory: memory{Resident: 150, Live: 100}}
	var out bytes.Buffer
	if err := show(&out, []result{
		{Reactions: []reaction{{Services: 1000, Endpoints: 10, Kind: kinds[0].name, P50: 200 * time.Microsecond, Objects: 3}}},
		{Cold: cold}, {Restart: []*coldStart{cold, cold}},
	}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"endpoint replaced", "200µs", "3.00", "10000 × 10", "10.24", "cold, before restarts", "| restart "} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in\n%s", want, out.String())
		}
	}
}

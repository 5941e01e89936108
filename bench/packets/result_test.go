// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

// TestResult_CompareByRound: ratios are computed per round, so a machine that becomes slower during the measurement
// does not change them.
func TestResult_CompareByRound(t *testing.T) {
	var r result
	r.compare([]float64{9, 90, 9, 90, 18}, []float64{10, 100, 10, 100, 10})
	if r.Rounds != 5 || r.Microseconds != 18 || r.Ratio != 0.9 || r.Low != 0.9 || r.High != 0.9 {
		t.Errorf("got %+v", r)
	}
	r = result{}
	r.compare([]float64{9, 9}, nil)
	if r.Ratio != 0 || r.Microseconds != 9 {
		t.Errorf("without a baseline: %+v", r)
	}
	r = result{}
	r.compare([]float64{9, 8, 1000}, []float64{10, 10})
	if r.Ratio < 0.849 || r.Ratio > 0.851 {
		t.Errorf("interrupted before the baseline's sample: %+v", r)
	}
}

func TestResult_Judge(t *testing.T) {
	for _, c := range []struct {
		ratio, low, goal float64
		missed           bool
	}{
		{0.94, 0.93, 0.95, false}, {0.951, 0.93, 0.95, true}, {1.01, 0.99, 1, false}, {1.02, 1.01, 1, true},
		{0.99, 0.98, 1, false}, {1.2, 1.1, 0, false}, {0, 0, 1, false},
	} {
		r := result{Ratio: c.ratio, Low: c.low, Goal: c.goal}
		if r.judge(); r.Missed != c.missed {
			t.Errorf("%v from %v, goal %v: missed %t", c.ratio, c.low, c.goal, r.Missed)
		}
	}
}

// made returns the results of two tables.
func made() []result {
	base := result{Backend: nftables, Family: "IPv4", Direction: forwarded, Services: 100, Endpoints: 10, Case: "tcp-pod",
		Rounds: 3, Baseline: kubeProxy}
	first, ours, bare, lost := base, base, base, base
	first.Variant, first.Microseconds, first.Ratio = kubeProxy, 10, 1
	ours.Variant, ours.Microseconds, ours.Ratio, ours.Low, ours.High, ours.Goal = "new", 9.5, 0.95, 0.94, 0.96, 0.93
	ours.judge()
	bare.Variant, bare.Microseconds, bare.Ratio, bare.Low, bare.High = floor, 9, 0.9, 0.89, 0.91
	lost.Direction, lost.Variant, lost.Rounds, lost.Error = local, "new", 0, "receive: lost"
	return []result{first, ours, bare, lost}
}

func TestShow(t *testing.T) {
	var out bytes.Buffer
	if err := show(&out, made()); err != nil {
		t.Fatal(err)
	}
	want := `nftables, IPv4, forwarded, 100 × 10: µs, and the ratio to kube-proxy (quartiles) of 3 rounds

|         | kube-proxy |                           new |                     floor |   goal |
| ------- | ---------: | ----------------------------: | ------------------------: | -----: |
| tcp-pod |      10.00 | **9.50  0.950 (0.940–0.960)** | 9.00  0.900 (0.890–0.910) | ≤ 0.93 |

nftables, IPv4, local, 100 × 10: µs, and the ratio to kube-proxy (quartiles) of 0 rounds

|         |    new | goal |
| ------- | -----: | ---: |
| tcp-pod | failed |      |

`
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", out.String(), want)
	}
}

// TestFailures_AreErrors: a result with an error makes the measurement fail and is named.
func TestFailures_AreErrors(t *testing.T) {
	if err := failures(made()); err == nil || !strings.Contains(err.Error(), "tcp-pod: new: receive: lost") {
		t.Errorf("got %v", err)
	}
	if err := failures(made()[:3]); err != nil {
		t.Errorf("got %v, want nothing", err)
	}
}

// TestSetting_ResultsOfSeries: a series has no ratio for a failed variant, but reports its error.
func TestSetting_ResultsOfSeries(t *testing.T) {
	s := setting{backend: nftables, cluster: cluster{services: 100, endpoints: 10}}
	s.rooms = map[string]*room{kubeProxy: {}, "a": {}, "b": {}, floor: {}}
	s.variants = []variant{{name: kubeProxy, program: "/k"}, {name: "a", program: "/a"}, {name: "b", program: "/b"}, {name: "late", program: "/l"}, {name: floor}}
	one := &series{
		benchCase: benchCase{name: "tcp-node-port", goal: 0.95}, direction: local,
		samples: map[string][]float64{kubeProxy: {2, 2}, "a": {1.8, 2}, "b": {1}},
		failed:  map[string]error{"b": errors.New("lost")},
	}
	got := s.results(one)
	if len(got) != 4 {
		t.Fatalf("%+v, want all but floor, which has no Services", got)
	}
	if a := got[1]; a.Variant != "a" || a.Ratio != 0.95 || a.Goal != 0.95 || a.Missed {
		t.Errorf("got %+v", a)
	}
	if got[2].Error != "lost" || got[2].Rounds != 0 || got[3].Error != "not applied in time" {
		t.Errorf("got %+v", got[2:])
	}
	s.backend = iptablesLegacy
	if a := s.results(one)[1]; a.Goal != unslower {
		t.Errorf("goal of %s is %v", s.backend, a.Goal)
	}
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
	"time"
)

// example has two rounds, in one of which kube-proxy did not get there.
func example() *comparison {
	step := churnStep(rates[1])
	return &comparison{[]value{
		{sluice, step, toAnswer + ", p99", "s", 0.050, false}, {sluice, step, attempted, "", 100, false}, {sluice, step, lost, "", 0, false},
		{kubeProxy, step, toAnswer + ", p99", "s", 4, false}, {kubeProxy, step, attempted, "", 200, false}, {kubeProxy, step, lost, "", 3, false},
		{kubeProxy, step, toAnswer + ", p99", "s", 60, true},
		{sluice, step, toAnswer + ", p99", "s", 0.070, false},
	}}
}

func TestComparison_Print(t *testing.T) {
	var b strings.Builder
	if err := example().print(&b, "1000 Services"); err != nil {
		t.Fatal(err)
	}
	want := `| 1000 Services                  |      sluice |        kube-proxy |   ratio |      goal |
| ------------------------------ | ----------: | ----------------: | ------: | --------: |
| API write to first answer, p99 | **60.0 ms** | not within 32.0 s | > 533 × | ≤ 50.0 ms |
| connections lost               |    0 of 100 |          3 of 200 |         |         0 |

| 100 changes/s         |  sluice |        kube-proxy |   ratio |
| --------------------- | ------: | ----------------: | ------: |
| write to answer, p99  | 60.0 ms | not within 32.0 s | > 533 × |
| connections attempted |     100 |               200 |         |
| connections lost      |       0 |                 3 |         |

`
	if b.String() != want {
		t.Errorf("printed\n%s\nwant\n%s", b.String(), want)
	}
}

func TestValue_String(t *testing.T) {
	for want, v := range map[string]value{
		"1.50 s": {unit: "s", number: 1.5}, "12.3 ms": {unit: "s", number: 0.01234}, "0.25 ms": {unit: "s", number: 0.00025},
		"150 MiB": {unit: "MiB", number: 150.2}, "17": {number: 17}, "99.9 /s": {unit: "/s", number: 99.9},
		"10.0 ms": {unit: "s", number: 0.0099999}, "1000 ms": {unit: "s", number: 0.9999}, "0 ms": {unit: "s"},
		"not within 180 s": {unit: "s", number: 180, beyond: true},
	} {
		if got := v.String(); got != want {
			t.Errorf("%+v: %q, want %q", v, got, want)
		}
	}
}

// TestPercentile_UnfinishedCountAsLongest: an operation that did not end counts as longer than every one that did.
func TestPercentile_UnfinishedCountAsLongest(t *testing.T) {
	took := []time.Duration{time.Second, 2 * time.Second, 3 * time.Second}
	for percent, want := range map[int]float64{50: 2, 75: 3} {
		if got, ok := percentile(took, 1, percent); !ok || got != want {
			t.Errorf("p%d: %v, %t; want %v s", percent, got, ok, want)
		}
	}
	if got, ok := percentile(took, 1, 99); ok {
		t.Errorf("p99: %v, although one of four did not end", got)
	}
}

// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// compared are the tables of performance.md that compare programs, by their number of Services.
var compared = regexp.MustCompile(`(?m)^\| (\d+) Services +\|.*\n(?:\|.*\n)+`)

// TestPerformance_MeasurementsQuoted compares the numbers that other pages quote with the table of 10,000 Services
// in performance.md.
func TestPerformance_MeasurementsQuoted(t *testing.T) {
	// cells has Sluice's value and kube-proxy's by the name of the row.
	cells := map[string][2]string{}
	for _, table := range compared.FindAllStringSubmatch(read(t, "performance.md"), -1) {
		if table[1] != "10000" {
			continue
		}
		for line := range strings.Lines(table[0]) {
			columns := strings.Split(strings.ReplaceAll(line, "**", ""), "|")
			cells[strings.TrimSpace(columns[1])] = [2]string{strings.TrimSpace(columns[2]), strings.TrimSpace(columns[3])}
		}
	}
	latency, memory := cells["API write to first answer, p50"], cells["resident memory, 100 changes/s"]
	for text, page := range map[string]string{
		fmt.Sprintf("after %s (kube-proxy 1.37: %s)", rounded(t, latency[0]), rounded(t, latency[1])):           "../README.md",
		fmt.Sprintf("| API write to first answer, 10,000 Services, median | %s | %s |", latency[0], latency[1]): "comparison.md",
		fmt.Sprintf("| Resident memory in that run | %s | %s |", memory[0], memory[1]):                          "comparison.md",
	} {
		if !strings.Contains(strings.Join(strings.Fields(read(t, page)), " "), text) {
			t.Errorf("%s does not contain %q", page, text)
		}
	}
}

// rounded returns a value with a unit without decimals.
func rounded(t *testing.T, text string) string {
	t.Helper()
	var value float64
	var unit string
	if _, err := fmt.Sscan(text, &value, &unit); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return fmt.Sprintf("%.0f %s", value, unit)
}

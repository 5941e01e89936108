package metrics

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// TestEveryMetricIsDocumented compares the tables of docs/metrics.md with the
// catalogues and with the metrics of Services.
func TestEveryMetricIsDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]string{"sluice_services_omitted": kindGauge}
	for _, d := range slices.Concat(catalogue(t, "kubeproxy.txt"), catalogue(t, "sluice.txt")) {
		kinds[d.name] = d.kind
	}
	for _, s := range slices.Concat(serviceMetrics, trafficMetrics) {
		kinds[s.name] = s.kind
	}
	for line := range strings.Lines(string(page)) {
		columns := strings.Split(line, " | ")
		name, isName := strings.CutPrefix(columns[0], "| `")
		name = strings.TrimSuffix(name, "`")
		if !isName || len(columns) < 3 || strings.HasPrefix(name, "/") {
			continue
		}
		if kind, known := kinds[name]; !known || kind != columns[1] {
			t.Errorf("documented as a %s: %s, which is %q", columns[1], name, kind)
		}
		delete(kinds, name)
	}
	for name := range kinds {
		t.Errorf("%s is not documented", name)
	}
}

// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/internal/daemon/logging"
	"github.com/sluice-proxy/sluice/observe/metrics"
	"github.com/sluice-proxy/sluice/test/netnstest"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// TestPartMetrics_MatchCatalogue: over all modes, the metrics of the parts have the kinds, labels and meanings of the
// catalogue.
func TestPartMetrics_MatchCatalogue(t *testing.T) {
	text, err := os.ReadFile("../../observe/metrics/testdata/parts.txt")
	check(t, err)
	var want []string
	for line := range strings.Lines(string(text)) {
		if columns := strings.Split(strings.TrimSpace(line), " | "); len(columns) == 6 && line[0] != '#' {
			want = append(want, strings.Join([]string{columns[0], columns[1], columns[2], columns[5]}, " | "))
		}
	}
	node := netnstest.New(t, "node") // a mode changes sysctls
	got := map[string]bool{}
	for _, mode := range []string{"nftables", "userspace"} {
		o := parsed(t, "--proxy-mode="+mode, "--hostname-override=n1", "--sluice-state-dir="+t.TempDir(), testenv.Settings(t, "log: {level: error}"))
		log, err := logging.New(o.Log())
		check(t, err)
		check(t, node.Do(func() error {
			s, err := newServer(t.Context(), o, testLifetime(t, log))
			if err != nil {
				return err
			}
			for _, p := range s.parts {
				for _, d := range p.Metrics.Of {
					got[describe(&d)] = true
				}
			}
			return s.discard()
		}))
	}
	for _, line := range want {
		if !got[line] {
			t.Errorf("no part has %s", line)
		}
		delete(got, line)
	}
	for line := range got {
		t.Errorf("the catalogue lacks %s", line)
	}
}

// describe describes a metric as the catalogue does.
func describe(d *metrics.Definition) string {
	kind, labels := "counter", "-"
	if d.Kind == metrics.Gauge {
		kind = "gauge"
	}
	if len(d.Labels) > 0 {
		labels = strings.Join(slices.Sorted(slices.Values(d.Labels)), " ")
	}
	return strings.Join([]string{d.Name, kind, labels, d.Help}, " | ")
}

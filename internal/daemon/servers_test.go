// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"os"
	"slices"
	"testing"

	"github.com/sluice-proxy/sluice/internal/daemon/config"
	"github.com/sluice-proxy/sluice/internal/daemon/setup"
)

// TestHostNames_MetricsAddress: at the metrics address, the configured host names add to those of the node, and *
// stands for all.
func TestHostNames_MetricsAddress(t *testing.T) {
	machine, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ hosts, want []string }{
		{nil, []string{"n1", machine}},
		{[]string{"n1.example.com", "api.example.com"}, []string{"n1", machine, "n1.example.com", "api.example.com"}},
		{[]string{"n1.example.com", "*"}, nil},
	} {
		o := &Options{Options: setup.Options{Config: &config.Config{}}}
		o.Sluice.Metrics.Hosts = c.hosts
		if got := hostNames(o, "n1"); !slices.Equal(got, c.want) || (got == nil) != (c.want == nil) {
			t.Errorf("with %q: %q, want %q", c.hosts, got, c.want)
		}
	}
}

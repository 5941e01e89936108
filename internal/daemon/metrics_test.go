package daemon

import (
	"os"
	"slices"
	"testing"

	"github.com/sluice-proxy/sluice/internal/daemon/config"
	"github.com/sluice-proxy/sluice/proxy"
)

// TestHostNamesOfTheMetricsAddress: the configured names add to those of the node, and * stands for all.
func TestHostNamesOfTheMetricsAddress(t *testing.T) {
	machine, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ hosts, want []string }{
		{nil, []string{"n1", machine}},
		{[]string{"n1.example.com", "api.example.com"}, []string{"n1", machine, "n1.example.com", "api.example.com"}},
		{[]string{"n1.example.com", "*"}, nil},
	} {
		s := &server{Options: &Options{Config: &config.Config{}}, node: node{settings: proxy.NodeSettings{Name: "n1"}}}
		s.Sluice.Metrics.Hosts = c.hosts
		if got := s.hostNames(); !slices.Equal(got, c.want) || (got == nil) != (c.want == nil) {
			t.Errorf("with %q: %q, want %q", c.hosts, got, c.want)
		}
	}
}

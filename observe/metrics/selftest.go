package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-proxy/sluice/service"
)

// SelfTest is the result of the last self-test of a family.
type SelfTest struct {
	// Done is false before the first test, and if the node does not have the family.
	Done   bool
	Passed bool
	// Took is the duration of a test that passed.
	Took time.Duration
}

var (
	selfTestPassedDesc = prometheus.NewDesc("sluice_selftest_success",
		"1 if the last self-test passed, otherwise 0 (nftables and iptables modes).", []string{labelFamily}, nil)
	selfTestTookDesc = prometheus.NewDesc("sluice_selftest_duration_seconds",
		"Duration of the connection in the last self-test, if it passed (nftables and iptables modes).", []string{labelFamily}, nil)
)

func (m *Metrics) collectSelfTest(to chan<- prometheus.Metric) {
	for family, r := range m.config.SelfTest() {
		if !r.Done {
			continue
		}
		name := service.Family(family).String()
		send(to, selfTestPassedDesc, prometheus.GaugeValue, flag(r.Passed), name)
		if r.Passed {
			send(to, selfTestTookDesc, prometheus.GaugeValue, r.Took.Seconds(), name)
		}
	}
}

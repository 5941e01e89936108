package metrics

import "github.com/prometheus/client_golang/prometheus"

var foreignChainsDesc = prometheus.NewDesc("sluice_foreign_base_chains",
	"nftables base chains of other programs that Service traffic passes, by hook. They are no problem by themselves.", []string{"hook"}, nil)

func (m *Metrics) collectForeignChains(to chan<- prometheus.Metric) {
	for hook, n := range m.config.ForeignChains() {
		send(to, foreignChainsDesc, prometheus.GaugeValue, float64(n), hook)
	}
}

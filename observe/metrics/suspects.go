package metrics

import "github.com/prometheus/client_golang/prometheus"

var (
	suspectsDesc = prometheus.NewDesc("sluice_suspect_endpoints",
		"Endpoints that get no new connections because they did not answer; see sluice.dev/outlier.", nil, nil)
	ejectionsDesc = prometheus.NewDesc("sluice_endpoint_ejections_total",
		"Times that an endpoint was taken out because it did not answer.", nil, nil)
)

func (m *Metrics) collectSuspects(to chan<- prometheus.Metric) {
	now, ever := m.config.Suspects()
	send(to, suspectsDesc, prometheus.GaugeValue, float64(now))
	send(to, ejectionsDesc, prometheus.CounterValue, float64(ever))
}

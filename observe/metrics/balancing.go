package metrics

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-proxy/sluice/service"
)

var balancedDesc = prometheus.NewDesc("sluice_balanced_services",
	"Services by algorithm, other than random; see sluice.dev/balancing.", []string{"algorithm"}, nil)

// balancedCounts has the number of Services of each algorithm.
type balancedCounts []atomic.Int64

func newBalancedCounts() balancedCounts { return make(balancedCounts, len(service.Balancings())) }

// replace exchanges the algorithm of one Service.
func (c balancedCounts) replace(before, after service.Balancing) {
	if before != after {
		c[before].Add(-1)
		c[after].Add(1)
	}
}

func (m *Metrics) collectBalanced(to chan<- prometheus.Metric) {
	for i, name := range service.Balancings() {
		if by := service.Balancing(i); by != service.Random {
			send(to, balancedDesc, prometheus.GaugeValue, float64(m.balanced[by].Load()), name)
		}
	}
}

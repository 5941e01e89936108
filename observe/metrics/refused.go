// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
)

// The addresses whose callers are checked, as they are in metrics.
const (
	AddressMetrics    = "metrics"
	AddressInspection = "inspection"
)

// refusedFor are the reasons of refused requests, by the status of the answer.
var refusedFor = map[int]string{
	http.StatusUnauthorized: "unauthorized", http.StatusForbidden: "forbidden", http.StatusServiceUnavailable: "unavailable",
	http.StatusRequestURITooLong: "invalid",
}

func newRefused(registry prometheus.Registerer) *prometheus.CounterVec {
	all := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "sluice_refused_requests_total",
		Help: "Refused requests to an address with authorization (metrics, inspection) by reason: unauthorized, forbidden, unavailable (the caller could not be checked), invalid."},
		[]string{"address", "reason"})
	registry.MustRegister(all)
	for _, reason := range refusedFor {
		all.WithLabelValues(AddressMetrics, reason)
		all.WithLabelValues(AddressInspection, reason)
	}
	return all
}

// Refused counts a request at an address that was refused with a status.
func (m *Metrics) Refused(address string, status int) {
	m.refused.WithLabelValues(address, refusedFor[status]).Inc()
}

package metrics

import (
	"strconv"

	"github.com/sluice-proxy/sluice/conntrack"
	"github.com/sluice-proxy/sluice/service"
)

// Healthz counts one answer to /healthz, by its HTTP status code.
func (m *Metrics) Healthz(code int) { m.kube.healthz.WithLabelValues(strconv.Itoa(code)).Inc() }

// Livez counts one answer to /livez, by its HTTP status code.
func (m *Metrics) Livez(code int) { m.kube.livez.WithLabelValues(strconv.Itoa(code)).Inc() }

// Conntrack counts one clean-up of stale flows. One that failed is no sample of how
// long it takes, as with kube-proxy; what it deleted before counts.
func (m *Metrics) Conntrack(event conntrack.Event) {
	e, ok := event.(conntrack.Swept)
	if !ok {
		return
	}
	family := e.Family.String()
	m.own.flowsSeen.WithLabelValues(family).Add(float64(e.Flows))
	m.kube.conntrackDeleted.WithLabelValues(family).Add(float64(e.Deleted))
	if e.Err != nil {
		m.own.conntrackFailures.WithLabelValues(family).Inc()
	} else {
		m.kube.conntrackSeconds.WithLabelValues(family).Observe(e.Took.Seconds())
	}
	for key, deleted := range e.Services {
		m.forgot(key, deleted)
	}
}

// forgot adds the flows that one Service has lost.
func (m *Metrics) forgot(key service.Key, flows int) {
	m.roster.update(key, func(r *record) { r.flowsDeleted += uint32(flows) })
}

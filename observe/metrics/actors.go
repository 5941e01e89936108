// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-proxy/sluice/actors"
	"github.com/sluice-proxy/sluice/dataplane/conntrack/cleaner"
	"github.com/sluice-proxy/sluice/observe/book"
	"github.com/sluice-proxy/sluice/observe/state"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source"
	"github.com/sluice-proxy/sluice/supervisor"
)

// actorMetrics are the metrics of actors, shadowed frontends and conntrack cleanups.
type actorMetrics struct {
	restarts, parks              prometheus.Counter
	shadowed                     prometheus.Gauge
	failures                     *prometheus.CounterVec
	flowsSeen, conntrackFailures *prometheus.CounterVec
}

func newActorMetrics(registry prometheus.Registerer) *actorMetrics {
	of, families := definer{registry: registry}, []string{service.IPv4.String(), service.IPv6.String()}
	return &actorMetrics{
		restarts: of.counter("sluice_actor_restarts_total", "Actors restarted after a failure."),
		parks:    of.counter("sluice_actor_parks_total", "Actors parked after repeated failures."),
		shadowed: of.gauge("sluice_shadowed_frontends", "Addresses and ports (including node ports) requested by one Service and owned by another."),
		failures: of.counters("sluice_actor_failures_total", "Actor failures by kind: panic, error, stuck (hung on a message).", "kind", book.Failures...),

		flowsSeen:         of.counters("sluice_conntrack_flows_seen_total", "Flows that conntrack cleanups examined.", labelFamily, families...),
		conntrackFailures: of.counters("sluice_conntrack_failures_total", "Failed conntrack cleanups, which Sluice repeated.", labelFamily, families...),
	}
}

var (
	actorsDesc = prometheus.NewDesc("sluice_actors",
		"Actors by state: running, restarting, parked; includes the actor of node-wide rules.", []string{"state"}, nil)
	abandonedDesc = prometheus.NewDesc("sluice_actors_abandoned",
		"Goroutines of hung actors that did not return.", nil, nil)
	balancedDesc = prometheus.NewDesc("sluice_balanced_services",
		"Services by algorithm, other than random; see sluice.dev/balancing.", []string{"algorithm"}, nil)
)

// collectActors collects the metrics that are sums over the records of all Services.
func (m *Metrics) collectActors(to chan<- prometheus.Metric) {
	t := m.config.Book.Totals()
	send(to, actorsDesc, prometheus.GaugeValue, float64(t.Actors.Running), state.ActorRunning)
	send(to, actorsDesc, prometheus.GaugeValue, float64(t.Actors.Restarting), state.ActorRestarting)
	send(to, actorsDesc, prometheus.GaugeValue, float64(t.Actors.Parked), state.ActorParked)
	send(to, abandonedDesc, prometheus.GaugeValue, float64(t.Actors.Abandoned))
	for i, name := range service.Balancings() {
		if by := service.Balancing(i); by != service.Random {
			send(to, balancedDesc, prometheus.GaugeValue, float64(t.Balanced[i]), name)
		}
	}
}

// Supervisor counts failures, restarts and parks of actors.
func (m *Metrics) Supervisor(event supervisor.Event[service.Key]) {
	if kind, _ := book.Failure(event.What); kind != "" {
		m.actors.failures.WithLabelValues(kind).Inc()
	}
	switch e := event.What.(type) {
	case supervisor.Started:
		if e.Again {
			m.actors.restarts.Inc()
		}
	case supervisor.Parked:
		m.actors.parks.Inc()
	}
}

// Actors counts nothing: the book records these events.
func (m *Metrics) Actors(actors.Event) {}

// Source counts shadowed frontends.
func (m *Metrics) Source(e source.Shadowed) {
	n := float64(len(e.Frontends))
	if e.Over {
		n = -n
	}
	m.actors.shadowed.Add(n)
}

// Conntrack counts one sweep of stale flows. As in kube-proxy, the duration of a failed sweep is not observed, but the
// flows that it deleted before it failed count.
func (m *Metrics) Conntrack(e cleaner.Swept) {
	family := e.Family.String()
	m.actors.flowsSeen.WithLabelValues(family).Add(float64(e.Flows))
	m.kube.conntrackDeleted.WithLabelValues(family).Add(float64(e.Deleted))
	if e.Err != nil {
		m.actors.conntrackFailures.WithLabelValues(family).Inc()
	} else {
		m.kube.conntrackSeconds.WithLabelValues(family).Observe(e.Took.Seconds())
	}
}

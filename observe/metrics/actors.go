package metrics

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-proxy/sluice/actors"
	"github.com/sluice-proxy/sluice/dataplane/conntrack"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source"
	"github.com/sluice-proxy/sluice/supervisor"
)

// actorMetrics count actors and what works for all of them.
type actorMetrics struct {
	// running and parked count actors; the others wait to be restarted. abandoned counts the
	// goroutines of stuck ones.
	running, parked, abandoned atomic.Int64

	restarts, parks              prometheus.Counter
	shadowed                     prometheus.Gauge
	failures                     *prometheus.CounterVec
	flowsSeen, conntrackFailures *prometheus.CounterVec
}

// The kinds of failure of an actor.
const (
	failPanic = "panic"
	failError = "error"
	failStuck = "stuck"
)

func newActorMetrics(registry prometheus.Registerer) *actorMetrics {
	of, families := definer{registry: registry}, []string{service.IPv4.String(), service.IPv6.String()}
	return &actorMetrics{
		restarts: of.counter("sluice_actor_restarts_total", "Actors restarted after a failure."),
		parks:    of.counter("sluice_actor_parks_total", "Actors parked after repeated failures."),
		shadowed: of.gauge("sluice_shadowed_frontends", "Addresses and ports (including node ports) requested by one Service and owned by another."),
		failures: of.counters("sluice_actor_failures_total", "Actor failures by kind: panic, error, stuck (hung on a message).", "kind", failPanic, failError, failStuck),

		flowsSeen:         of.counters("sluice_conntrack_flows_seen_total", "Flows that conntrack cleanups examined.", labelFamily, families...),
		conntrackFailures: of.counters("sluice_conntrack_failures_total", "Failed conntrack cleanups, which Sluice repeated.", labelFamily, families...),
	}
}

var (
	actorsDesc = prometheus.NewDesc("sluice_actors",
		"Actors by state: running, restarting, parked; includes the actor of node-wide rules.", []string{"state"}, nil)
	abandonedDesc = prometheus.NewDesc("sluice_actors_abandoned",
		"Goroutines of hung actors that did not return.", nil, nil)
)

func (m *Metrics) collectActors(to chan<- prometheus.Metric) {
	running, waiting, parked := m.actors.states(m.records.len())
	send(to, actorsDesc, prometheus.GaugeValue, float64(running), StateRunning)
	send(to, actorsDesc, prometheus.GaugeValue, float64(waiting), StateRestarting)
	send(to, actorsDesc, prometheus.GaugeValue, float64(parked), StateParked)
	send(to, abandonedDesc, prometheus.GaugeValue, float64(m.actors.abandoned.Load()))
}

// states divides all actors by their state.
func (a *actorMetrics) states(all int) (running, waiting, parked int64) {
	running, parked = a.running.Load(), a.parked.Load()
	return running, max(0, int64(all)-running-parked), parked
}

// States counts the actors by their state, and the goroutines of abandoned ones.
func (m *Metrics) States() (running, waiting, parked, abandoned int) {
	r, w, p := m.actors.states(m.records.len())
	return int(r), int(w), int(p), int(m.actors.abandoned.Load())
}

// Supervisor counts what happens to actors. A Service has a record from the first start of its
// actor until its end: nothing else makes or removes one.
func (m *Metrics) Supervisor(event supervisor.Event[service.Key]) {
	switch e := event.What.(type) {
	case supervisor.Started:
		m.actors.running.Add(1)
		if m.records.start(event.Child) {
			m.actors.restarts.Inc()
		}
	case supervisor.Failed:
		kind := failError
		if _, panicked := errors.AsType[*supervisor.PanicError](e.Err); panicked {
			kind = failPanic
		}
		m.failed(event.Child, kind, e.Err.Error())
	case supervisor.Stuck:
		m.actors.abandoned.Store(int64(e.Abandoned))
		m.failed(event.Child, failStuck, "stuck with one message for "+e.For.Round(time.Millisecond).String())
	case supervisor.Parked:
		m.actors.parked.Add(1)
		m.actors.parks.Inc()
		m.records.update(event.Child, func(r *record) { r.ownFailures().parkedUntil = e.Until })
	case supervisor.Unparked:
		m.actors.parked.Add(-1)
		m.records.update(event.Child, func(r *record) { r.ownFailures().parkedUntil = time.Time{} })
	case supervisor.Ended:
		m.actors.running.Add(-1)
		m.ended(event.Child)
	case supervisor.Returned:
		m.actors.abandoned.Store(int64(e.Abandoned))
	}
}

func (m *Metrics) failed(key service.Key, kind, text string) {
	m.actors.running.Add(-1)
	m.actors.failures.WithLabelValues(kind).Inc()
	now := time.Now()
	m.records.update(key, func(r *record) { r.failed(now, kind, text) })
}

// ended removes a Service's record, and its share of the sums.
func (m *Metrics) ended(key service.Key) {
	last, known := m.records.end(key)
	if !known {
		return
	}
	for _, family := range service.Families {
		m.unserved[family].replace(last.unserved[family], unserved{})
	}
	m.balanced.replace(last.balancing, service.Random)
}

// Actors counts what happens in the directory and to actors.
func (m *Metrics) Actors(event actors.Event) {
	switch e := event.(type) {
	case actors.TooLarge:
		text := fmt.Sprintf("needs %d objects in %s; the limit is %d", e.Objects, e.Domain, e.Max)
		m.records.update(e.Key, func(r *record) { r.ownFailures().large = text })
	case actors.Fits:
		m.records.update(e.Key, func(r *record) { r.ownFailures().large = "" })
	case actors.Drains:
		m.records.drains(e.Key, e.Family, e.Endpoints)
	}
}

// Source counts frontends that Services lose to each other.
func (m *Metrics) Source(e source.Shadowed) {
	n := float64(len(e.Frontends))
	if e.Over {
		n = -n
	}
	m.actors.shadowed.Add(n)
}

// Programmed records how a Service is served in one family. It is for a proxy.ApplyObserver.
func (m *Metrics) Programmed(_ context.Context, family service.Family, view service.View) {
	endpoints, lacking := countEndpoints(view.Ports[family])
	m.records.update(view.Key, func(r *record) {
		r.served[family] = len(view.Ports[family]) > 0
		r.endpoints[family] = endpoints
		// Inside the lock, so that the end of the actor takes back exactly what was put in.
		m.unserved[family].replace(r.unserved[family], lacking)
		r.unserved[family] = lacking
		m.balanced.replace(r.balancing, view.Balancing)
		r.balancing = view.Balancing
	})
}

// Conntrack counts one clean-up of stale flows. As in kube-proxy, one that failed is no sample of
// how long it takes. What it deleted before it failed counts.
func (m *Metrics) Conntrack(event conntrack.Event) {
	e, ok := event.(conntrack.Swept)
	if !ok {
		return
	}
	family := e.Family.String()
	m.actors.flowsSeen.WithLabelValues(family).Add(float64(e.Flows))
	m.kube.conntrackDeleted.WithLabelValues(family).Add(float64(e.Deleted))
	if e.Err != nil {
		m.actors.conntrackFailures.WithLabelValues(family).Inc()
	} else {
		m.kube.conntrackSeconds.WithLabelValues(family).Observe(e.Took.Seconds())
	}
	for key, deleted := range e.Services {
		m.records.update(key, func(r *record) { r.flowsDeleted += uint32(deleted) })
	}
}

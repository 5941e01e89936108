package metrics

import (
	"context"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-proxy/sluice/service"
)

// serviceMetric is one metric of single Services.
type serviceMetric struct {
	name string
	kind prometheus.ValueType
	desc *prometheus.Desc
	// each reports the samples of one Service, with the values of the labels. What is unknown has
	// no sample.
	each func(a *answer, r *row, sample sampleFunc)
}

type sampleFunc = func(value float64, labels ...string)

func serviceGauge(name, help string, each func(*answer, *row, sampleFunc), labels ...string) serviceMetric {
	desc := prometheus.NewDesc(name, help, append([]string{"namespace", "name"}, labels...), nil)
	return serviceMetric{name, prometheus.GaugeValue, desc, each}
}

func serviceCounter(name, help string, each func(*answer, *row, sampleFunc), labels ...string) serviceMetric {
	metric := serviceGauge(name, help, each, labels...)
	metric.kind = prometheus.CounterValue
	return metric
}

// omittedDesc is of the metric that belongs to no Service.
var omittedDesc = prometheus.NewDesc("sluice_services_omitted",
	"Services that were asked for and did not fit the limit of this answer.", nil, nil)

// serviceMetrics exist in all modes but the last two of the first list, which need somebody who
// counts by frontend, and relayMetrics.
var serviceMetrics = slices.Concat([]serviceMetric{
	serviceGauge("sluice_service_last_commit_timestamp_seconds", "When the kernel last got a revision of the Service.",
		func(_ *answer, r *row, sample sampleFunc) {
			if r.committed != 0 {
				sample(float64(r.committed) / float64(time.Second))
			}
		}),
	serviceCounter("sluice_service_commits_total", "Revisions that the kernel got, over all families.",
		func(_ *answer, r *row, sample sampleFunc) { sample(float64(r.commits)) }),
	serviceGauge("sluice_service_revision_incarnation", "Incarnation of the actor that made the newest revision in the kernel.",
		func(_ *answer, r *row, sample sampleFunc) { sample(float64(r.revision.Incarnation)) }),
	serviceGauge("sluice_service_revision_sequence", "Number of the newest revision in the kernel within its incarnation.",
		func(_ *answer, r *row, sample sampleFunc) { sample(float64(r.revision.Sequence)) }),
	serviceGauge("sluice_service_programming_last_seconds", "Time that the last change took from its receipt to the kernel.",
		func(_ *answer, r *row, sample sampleFunc) { sampleMeasured(&r.received, r.received.Last, sample) }),
	serviceGauge("sluice_service_programming_longest_seconds", "Longest time that a change took from its receipt to the kernel.",
		func(_ *answer, r *row, sample sampleFunc) { sampleMeasured(&r.received, r.received.Longest, sample) }),
	serviceGauge("sluice_service_network_programming_last_seconds", "Time that the last change took from its cause, by the cluster's clock, to the kernel.",
		func(_ *answer, r *row, sample sampleFunc) { sampleMeasured(&r.triggered, r.triggered.Last, sample) }),
	serviceGauge("sluice_service_network_programming_longest_seconds", "Longest time that a change took from its cause, by the cluster's clock, to the kernel.",
		func(_ *answer, r *row, sample sampleFunc) { sampleMeasured(&r.triggered, r.triggered.Longest, sample) }),
	serviceCounter("sluice_service_actor_restarts_total", "Times that the Service's actor was started again after a failure.",
		func(_ *answer, r *row, sample sampleFunc) { sample(float64(r.restarts)) }),
	serviceGauge("sluice_service_actor_state", "1 for the state that the Service's actor is in: running, waiting or parked.",
		func(_ *answer, r *row, sample sampleFunc) { sample(1, r.state()) }, "state"),
	serviceGauge("sluice_service_quarantined", "1 while a domain holds the Service back, with the class of the reason.",
		func(a *answer, r *row, sample sampleFunc) {
			for _, q := range a.quarantined[r.key] {
				sample(1, q.domain, q.class)
			}
		}, labelDomain, "reason"),
	serviceGauge("sluice_service_shadowed", "1 while other Services serve addresses and ports that the Service wants.",
		func(a *answer, r *row, sample sampleFunc) {
			if a.shadowed[r.key] {
				sample(1)
			}
		}),
	serviceGauge("sluice_service_endpoints", "Endpoints by kind: local and remote ones get new connections, established and draining ones keep the flows that they have.",
		sampleEndpoints, labelFamily, "kind"),
	serviceCounter("sluice_service_conntrack_deleted_entries_total", "Stale conntrack entries that were removed.",
		func(_ *answer, r *row, sample sampleFunc) { sample(float64(r.flowsDeleted)) }),

	serviceCounter("sluice_service_connections_total", "Connections and flows that were given to an endpoint, since the Service has its virtual servers (mode ipvs) or listeners (mode userspace).",
		func(a *answer, r *row, sample sampleFunc) {
			a.eachCounted(r.key, func(family string, c Counters) { sample(float64(c.Connections), family) })
		}, labelFamily),
	serviceCounter("sluice_service_bytes_total", "Bytes to and from endpoints by way of the Service's virtual servers (mode ipvs) or listeners (mode userspace), since they exist.",
		func(a *answer, r *row, sample sampleFunc) {
			a.eachCounted(r.key, func(family string, c Counters) {
				sample(float64(c.BytesIn), family, "in")
				sample(float64(c.BytesOut), family, "out")
			})
		}, labelFamily, "direction"),
}, relayMetrics)

func sampleMeasured(l *latency, value float32, sample sampleFunc) {
	if l.measured() {
		sample(float64(value))
	}
}

// sampleEndpoints leaves out the families in which the Service is not served.
func sampleEndpoints(_ *answer, r *row, sample sampleFunc) {
	for _, family := range service.Families {
		if !r.served[family] {
			continue
		}
		e, name := r.endpoints[family], family.String()
		sample(float64(e.Local), name, "local")
		sample(float64(e.Remote), name, "remote")
		sample(float64(e.Established), name, "established")
		if draining := r.draining[family]; draining > 0 {
			sample(float64(draining), name, "draining")
		}
	}
}

func serviceDescs() []*prometheus.Desc {
	all := []*prometheus.Desc{omittedDesc}
	for _, metric := range serviceMetrics {
		all = append(all, metric.desc)
	}
	return all
}

// collectServices collects what /metrics/services?top=ServicesMax shows.
func (m *Metrics) collectServices(to chan<- prometheus.Metric) {
	if m.config.ServicesMax > 0 {
		m.answer(context.Background(), &query{top: m.config.ServicesMax}).collect(to)
	}
}

// collect sends the samples of an answer.
func (a *answer) collect(to chan<- prometheus.Metric) {
	send(to, omittedDesc, prometheus.GaugeValue, float64(a.omitted))
	for _, metric := range serviceMetrics {
		for i := range a.rows {
			r := &a.rows[i]
			metric.each(a, r, func(value float64, labels ...string) {
				send(to, metric.desc, metric.kind, value, append([]string{r.key.Namespace, r.key.Name}, labels...)...)
			})
		}
	}
}

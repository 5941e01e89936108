// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/sluice-proxy/sluice/dataplane/traffic"
	"github.com/sluice-proxy/sluice/observe/state"
	"github.com/sluice-proxy/sluice/service"
)

// serviceMetric is one metric of single Services.
type serviceMetric struct {
	name   string
	help   string
	kind   prometheus.ValueType
	desc   *prometheus.Desc
	labels []string
	// each reports the samples of one Service, with the values of the labels. What is unknown has
	// no sample.
	each func(a *answer, r *state.Record, sample sampleFunc)
}

type sampleFunc = func(value float64, labels ...string)

func serviceGauge(name, help string, each func(*answer, *state.Record, sampleFunc), labels ...string) serviceMetric {
	desc := prometheus.NewDesc(name, help, append([]string{"namespace", "name"}, labels...), nil)
	return serviceMetric{name, help, prometheus.GaugeValue, desc, labels, each}
}

func serviceCounter(name, help string, each func(*answer, *state.Record, sampleFunc), labels ...string) serviceMetric {
	metric := serviceGauge(name, help, each, labels...)
	metric.kind = prometheus.CounterValue
	return metric
}

// omittedDesc is of the metric that belongs to no Service.
var omittedDesc = prometheus.NewDesc(omittedName, omittedHelp, nil, nil)

const (
	omittedName = "sluice_services_omitted"
	omittedHelp = "Services above the limit of this response."
)

// serviceMetrics exist in all modes, except for the last four of the first list, which need a backend that counts, and
// relayMetrics.
var serviceMetrics = slices.Concat([]serviceMetric{
	serviceGauge("sluice_service_last_commit_timestamp_seconds", "Time at which the latest revision was applied.",
		func(_ *answer, r *state.Record, sample sampleFunc) {
			if !r.LastChange.IsZero() {
				sample(float64(r.LastChange.UnixNano()) / float64(time.Second))
			}
		}),
	serviceCounter("sluice_service_commits_total", "Revisions applied to the kernel, over all IP families.",
		func(_ *answer, r *state.Record, sample sampleFunc) { sample(float64(r.Changes)) }),
	serviceGauge("sluice_service_revision_incarnation", "Actor incarnation of the latest applied revision.",
		func(_ *answer, r *state.Record, sample sampleFunc) { sample(float64(r.Revision.Incarnation)) }),
	serviceGauge("sluice_service_revision_sequence", "Sequence number of the latest applied revision within its incarnation.",
		func(_ *answer, r *state.Record, sample sampleFunc) { sample(float64(r.Revision.Sequence)) }),
	serviceGauge("sluice_service_programming_last_seconds", "Time from receipt of the latest change until the kernel had it.",
		func(_ *answer, r *state.Record, sample sampleFunc) { sampleMicros(r.LastMicros, sample) }),
	serviceGauge("sluice_service_programming_longest_seconds", "Maximum time from receipt of a change until the kernel had it.",
		func(_ *answer, r *state.Record, sample sampleFunc) { sampleMicros(r.LongestMicros, sample) }),
	serviceGauge("sluice_service_network_programming_last_seconds", "Time from the trigger of the latest change, by the cluster's clock, until the kernel had it.",
		func(_ *answer, r *state.Record, sample sampleFunc) { sampleMicros(r.CauseLastMicros, sample) }),
	serviceGauge("sluice_service_network_programming_longest_seconds", "Maximum time from the trigger of a change, by the cluster's clock, until the kernel had it.",
		func(_ *answer, r *state.Record, sample sampleFunc) { sampleMicros(r.CauseLongestMicros, sample) }),
	serviceCounter("sluice_service_actor_restarts_total", "Restarts of the Service's actor after failures.",
		func(_ *answer, r *state.Record, sample sampleFunc) { sample(float64(r.Restarts)) }),
	serviceGauge("sluice_service_actor_state", "1 for the current state of the Service's actor: running, restarting, parked.",
		func(_ *answer, r *state.Record, sample sampleFunc) { sample(1, r.Actor.State) }, "state"),
	serviceGauge("sluice_service_quarantined", "1 while a domain quarantines the Service, by class of the reason.",
		func(_ *answer, r *state.Record, sample sampleFunc) {
			for i := range r.Quarantines {
				sample(1, r.Quarantines[i].Domain, r.Quarantines[i].Class)
			}
		}, labelDomain, "reason"),
	serviceGauge("sluice_service_shadowed", "1 while other Services own addresses and ports requested by the Service.",
		func(_ *answer, r *state.Record, sample sampleFunc) {
			if r.Shadowed {
				sample(1)
			}
		}),
	serviceGauge("sluice_service_endpoints", "Endpoints (address and port) by kind: local and remote endpoints get new connections; established and draining endpoints keep existing ones.",
		sampleEndpoints, labelFamily, "kind"),
	serviceCounter("sluice_service_conntrack_deleted_entries_total", "Deleted stale conntrack entries.",
		func(_ *answer, r *state.Record, sample sampleFunc) { sample(float64(r.FlowsDeleted)) }),

	serviceCounter("sluice_service_connections_total", "New connections and flows: since the Service's virtual servers or listeners were created (IPVS and userspace mode), since `sluice_services_counted_since_timestamp_seconds` (nftables mode), or a lower bound (iptables mode).",
		func(a *answer, r *state.Record, sample sampleFunc) {
			a.eachCounted(r.Key, func(family string, c *traffic.ServiceTally) { sample(float64(c.Connections), family) })
		}, labelFamily),
	serviceCounter("sluice_service_refused_total", "Refused packets (nftables and iptables mode) or clients (userspace mode) by reason.",
		func(a *answer, r *state.Record, sample sampleFunc) {
			a.eachCounted(r.Key, func(family string, c *traffic.ServiceTally) {
				for _, reason := range a.reasons {
					sample(float64(c.Refused[reason]), family, reason.String())
				}
			})
		}, labelFamily, "reason"),
	serviceCounter("sluice_service_endpoint_connections_total", "New connections and flows by endpoint (userspace and iptables mode, and nftables and IPVS mode with traffic.endpoints).",
		func(a *answer, r *state.Record, sample sampleFunc) {
			a.eachCounted(r.Key, func(family string, c *traffic.ServiceTally) {
				eachEndpoint(c.Endpoints, func(endpoint string, e traffic.Tally) { sample(float64(e.Connections), family, endpoint) })
			})
		}, labelFamily, labelEndpoint),
	serviceCounter("sluice_service_bytes_total", "Bytes by direction (in, out) since the Service's virtual servers or listeners were created: packets in IPVS mode, forwarded payload in userspace mode.",
		func(a *answer, r *state.Record, sample sampleFunc) {
			a.eachCounted(r.Key, func(family string, c *traffic.ServiceTally) {
				if c.HasBytes {
					sample(float64(c.BytesIn), family, "in")
					sample(float64(c.BytesOut), family, "out")
				}
			})
		}, labelFamily, "direction"),
}, relayMetrics)

func sampleMicros(micros *int64, sample sampleFunc) {
	if micros != nil {
		sample(float64(*micros) / 1e6)
	}
}

// sampleEndpoints leaves out the families in which the Service is not served.
func sampleEndpoints(_ *answer, r *state.Record, sample sampleFunc) {
	for _, family := range service.Families {
		e, name := &r.Families[family], family.String()
		if !e.Served {
			continue
		}
		sample(float64(e.Local), name, "local")
		sample(float64(e.Remote), name, "remote")
		sample(float64(e.Established), name, "established")
		if e.Draining > 0 {
			sample(float64(e.Draining), name, "draining")
		}
	}
}

func serviceDescs() []*prometheus.Desc {
	all := []*prometheus.Desc{omittedDesc, countedSinceDesc, unallocatedDesc}
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
	a.collectReadings(to)
	own := make([][]*dto.LabelPair, len(a.records))
	for i := range a.records {
		own[i] = []*dto.LabelPair{pair("name", a.records[i].Key.Name), pair("namespace", a.records[i].Key.Namespace)}
	}
	others := pairs{}
	for n := range serviceMetrics {
		metric := &serviceMetrics[n]
		var at int
		sample := func(value float64, labels ...string) {
			to <- &serviceSample{metric, value, others.join(own[at], metric.labels, labels)}
		}
		for at = range a.records {
			metric.each(a, &a.records[at], sample)
		}
	}
}

// serviceSample is one sample of a Service. Ten thousand Services have 150,000 samples: unlike those of the library,
// these share the pairs of their labels.
type serviceSample struct {
	metric *serviceMetric
	value  float64
	// labels are sorted by name.
	labels []*dto.LabelPair
}

// Desc implements prometheus.Metric.
func (s *serviceSample) Desc() *prometheus.Desc { return s.metric.desc }

// Write implements prometheus.Metric.
func (s *serviceSample) Write(to *dto.Metric) error {
	to.Label = s.labels
	if s.metric.kind == prometheus.CounterValue {
		to.Counter = &dto.Counter{Value: &s.value}
	} else {
		to.Gauge = &dto.Gauge{Value: &s.value}
	}
	return nil
}

// pairs has the pairs of labels that the samples of an answer share.
type pairs map[[2]string]*dto.LabelPair

// join adds pairs to those of a Service, in the order of the names.
func (p pairs) join(own []*dto.LabelPair, names, values []string) []*dto.LabelPair {
	if len(names) == 0 {
		return own
	}
	all := append(make([]*dto.LabelPair, 0, len(own)+len(names)), own...)
	for i, name := range names {
		at := [2]string{name, values[i]}
		if p[at] == nil {
			p[at] = pair(name, values[i])
		}
		all = append(all, p[at])
	}
	slices.SortFunc(all, func(x, y *dto.LabelPair) int { return strings.Compare(x.GetName(), y.GetName()) })
	return all
}

func pair(name, value string) *dto.LabelPair { return &dto.LabelPair{Name: &name, Value: &value} }

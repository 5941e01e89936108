// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-proxy/sluice/service"
)

// The labels that several topics share.
const (
	labelDomain = "domain"
	labelFamily = "ip_family"
)

// The classic buckets of our own histograms, for those who do not scrape native ones.
var (
	// finely goes from 50 µs to 52 s.
	finely = prometheus.ExponentialBuckets(50e-6, 2, 21)
	// coarsely has every second of these, as deploy/monitoring keeps them.
	coarsely = prometheus.ExponentialBuckets(100e-6, 4, 10)
	// counts goes from 1 to 262,144 things.
	counts = prometheus.ExponentialBuckets(1, 4, 10)
)

// definer makes metrics of our own and registers them, so that each is defined in one place.
type definer struct {
	registry prometheus.Registerer
	// labels are the same for every sample.
	labels prometheus.Labels
}

func (d definer) counter(name, help string) prometheus.Counter {
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help, ConstLabels: d.labels})
	d.registry.MustRegister(c)
	return c
}

func (d definer) gauge(name, help string) prometheus.Gauge {
	g := prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: d.labels})
	d.registry.MustRegister(g)
	return g
}

// counters makes a counter with one label. Those of the known values start at 0, so that rate()
// sees their first step.
func (d definer) counters(name, help, label string, values ...string) *prometheus.CounterVec {
	opts := prometheus.CounterOpts{Name: name, Help: help, ConstLabels: d.labels}
	c := prometheus.NewCounterVec(opts, []string{label})
	d.registry.MustRegister(c)
	for _, value := range values {
		c.WithLabelValues(value)
	}
	return c
}

// histogram makes a histogram with classic buckets and the native form. Native buckets grow by at
// most a tenth. If there are more than 160, as many as Kubernetes allows (component-base v0.37),
// the histogram starts again, but at most once an hour; otherwise it doubles their width.
func (d definer) histogram(name, help string, buckets []float64) prometheus.Histogram {
	h := prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: name, Help: help, ConstLabels: d.labels, Buckets: buckets,
		NativeHistogramBucketFactor:     1.1,
		NativeHistogramMaxBucketNumber:  160,
		NativeHistogramMinResetDuration: time.Hour,
	})
	d.registry.MustRegister(h)
	return h
}

// slowest attaches the name of a Service to the slowest observation of a histogram, so that a slow
// percentile names a Service. It belongs to the goroutine of one domain.
type slowest struct {
	to      prometheus.ExemplarObserver
	seconds float64
	until   time.Time
}

// exemplarPeriod is how long an observation counts as the slowest one.
const exemplarPeriod = time.Minute

// exemplarMax is the largest size of an exemplar in characters (OpenMetrics 1.0), without the label's name.
const exemplarMax = prometheus.ExemplarMaxRunes - len(exemplarLabel)

const exemplarLabel = "service"

// observe observes a duration, which makes an exemplar only if it is the slowest one.
func (s *slowest) observe(now time.Time, key service.Key, took time.Duration) {
	seconds := took.Seconds()
	var labels prometheus.Labels
	if seconds >= s.seconds || now.After(s.until) {
		s.seconds, s.until = seconds, now.Add(exemplarPeriod)
		name := key.String()
		labels = prometheus.Labels{exemplarLabel: name[:min(len(name), exemplarMax)]}
	}
	s.to.ObserveWithExemplar(seconds, labels)
}

// slowest makes a histogram with an exemplar for its slowest observation.
func (d definer) slowest(name, help string, buckets []float64) slowest {
	return slowest{to: d.histogram(name, help, buckets).(prometheus.ExemplarObserver)}
}

// collector computes its metrics at each scrape. Its state is elsewhere.
type collector struct {
	descs   []*prometheus.Desc
	collect func(to chan<- prometheus.Metric)
}

// Describe implements prometheus.Collector.
func (c collector) Describe(to chan<- *prometheus.Desc) {
	for _, desc := range c.descs {
		to <- desc
	}
}

// Collect implements prometheus.Collector.
func (c collector) Collect(to chan<- prometheus.Metric) { c.collect(to) }

// send sends one sample of a collector. An invalid sample, such as one with a label that is not UTF-8, fails the scrape
// and not the process.
func send(to chan<- prometheus.Metric, desc *prometheus.Desc, kind prometheus.ValueType, value float64, labels ...string) {
	metric, err := prometheus.NewConstMetric(desc, kind, value, labels...)
	if err != nil {
		metric = prometheus.NewInvalidMetric(desc, err)
	}
	to <- metric
}

// sendTotal sends a counter without labels that has counted since a moment.
func sendTotal(to chan<- prometheus.Metric, desc *prometheus.Desc, value float64, since time.Time) {
	to <- prometheus.MustNewConstMetricWithCreatedTimestamp(desc, prometheus.CounterValue, value, since)
}

func flag(set bool) float64 {
	if set {
		return 1
	}
	return 0
}

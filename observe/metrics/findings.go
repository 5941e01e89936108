package metrics

import "github.com/prometheus/client_golang/prometheus"

// Finding is how much there is of one kind of thing that is not as it should be.
type Finding struct {
	// Kind is the name that /healthz?verbose gives it.
	Kind string
	// Domain is empty for what is about the whole node.
	Domain string
	// Count is 0 for nothing.
	Count int
}

// findings shows what health finds. It asks at each scrape, and holds nothing
// meanwhile.
type findings struct {
	ask  func() []Finding
	desc *prometheus.Desc
}

func newFindings(ask func() []Finding) findings {
	return findings{ask, prometheus.NewDesc("sluice_health_finding",
		"What is not as it should be, by the name it has in /healthz?verbose: the number of Services or API resources concerned, 1 for what has none, 0 for nothing.",
		[]string{"finding", labelDomain}, nil)}
}

// Describe names the metric.
func (f findings) Describe(to chan<- *prometheus.Desc) { to <- f.desc }

// Collect asks for the findings of this moment.
func (f findings) Collect(to chan<- prometheus.Metric) {
	for _, each := range f.ask() {
		to <- prometheus.MustNewConstMetric(f.desc, prometheus.GaugeValue, float64(each.Count), each.Kind, each.Domain)
	}
}

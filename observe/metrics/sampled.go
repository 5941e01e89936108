// SPDX-License-Identifier: Apache-2.0

package metrics

import "github.com/prometheus/client_golang/prometheus"

// Sampled are metrics of a part of the process, which reads their values at each scrape.
type Sampled struct {
	Of []Definition
	// Read calls send for each value, at most once for the same name and labels. It must not block.
	Read func(send Send)
}

// Send receives the value of a metric with this name, and one value for each of its labels.
type Send func(name string, value float64, labels ...string)

// Definition defines a metric.
type Definition struct {
	Name, Help string
	Labels     []string
	Kind       Kind
}

// Kind is the kind of a metric.
type Kind int

// The kinds. Total is a counter without labels whose creation time is that of the Metrics.
const (
	Gauge Kind = iota
	Counter
	Total
)

// One returns a metric without labels.
func One(name, help string, kind Kind, read func() float64) Sampled {
	return Sampled{Of: []Definition{{Name: name, Help: help, Kind: kind}}, Read: func(send Send) { send(name, read()) }}
}

// Flag returns 1 for true, and 0 for false.
func Flag(set bool) float64 { return flag(set) }

// Register adds the metrics of a part.
func (m *Metrics) Register(s Sampled) {
	if s.Read == nil {
		return
	}
	descs, kinds := make([]*prometheus.Desc, len(s.Of)), map[string]Kind{}
	of := map[string]*prometheus.Desc{}
	for i, d := range s.Of {
		descs[i] = prometheus.NewDesc(d.Name, d.Help, d.Labels, nil)
		of[d.Name], kinds[d.Name] = descs[i], d.Kind
	}
	m.registry.MustRegister(collector{descs, func(to chan<- prometheus.Metric) {
		s.Read(func(name string, value float64, labels ...string) {
			switch kinds[name] {
			case Total:
				sendTotal(to, of[name], value, m.began)
			case Counter:
				send(to, of[name], prometheus.CounterValue, value, labels...)
			default:
				send(to, of[name], prometheus.GaugeValue, value, labels...)
			}
		})
	}})
}

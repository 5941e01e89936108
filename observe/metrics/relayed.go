// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"net/netip"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-proxy/sluice/dataplane/traffic"
	"github.com/sluice-proxy/sluice/observe/state"
	"github.com/sluice-proxy/sluice/service"
)

// Relay is what a process in userspace mode has forwarded in total.
type Relay struct {
	// Connects counts the connections that endpoints accepted within a bound, by the bound in seconds. Accepted counts
	// all accepted connections, and Seconds is how long endpoints took to accept them.
	Connects map[float64]uint64
	Accepted uint64
	Seconds  float64
	Retries  uint64
	// Open are connections by protocol, and Refused clients that were not served by reason.
	Open, Refused map[string]uint64
}

// labelEndpoint is the address and port of an endpoint.
const labelEndpoint = "endpoint"

// relayMetrics exist in userspace mode, and those of open connections also while the connection table is read
// continuously.
var relayMetrics = []serviceMetric{
	serviceGauge("sluice_service_open_connections", "Open connections and UDP sessions (userspace mode, and the other modes with traffic.accounting).",
		func(a *answer, r *state.Record, sample sampleFunc) {
			relayedOf(func(of *traffic.ServiceTally, family string, sample sampleFunc) { sample(float64(of.Open), family) })(a, r, sample)
			a.eachTracked(r, func(family string, open map[netip.AddrPort]uint64) {
				var sum uint64
				for _, n := range open {
					sum += n
				}
				sample(float64(sum), family)
			})
		}, labelFamily),
	serviceCounter("sluice_service_connect_failures_total", "Failed connection attempts to endpoints: refused or timed out.",
		relayedOf(func(of *traffic.ServiceTally, family string, sample sampleFunc) { sample(float64(of.Failures), family) }), labelFamily),
	serviceCounter("sluice_service_connect_retries_total", "Failed connection attempts followed by an attempt at another endpoint.",
		relayedOf(func(of *traffic.ServiceTally, family string, sample sampleFunc) { sample(float64(of.Retries), family) }), labelFamily),
	serviceGauge("sluice_service_endpoint_open_connections", "Open connections and UDP sessions by endpoint (userspace mode, and the other modes with traffic.accounting).",
		func(a *answer, r *state.Record, sample sampleFunc) {
			endpointsOf(func(e *traffic.Tally, sample sampleFunc) { sample(float64(e.Open)) })(a, r, sample)
			a.eachTracked(r, func(family string, open map[netip.AddrPort]uint64) {
				eachEndpoint(open, func(endpoint string, n uint64) { sample(float64(n), family, endpoint) })
			})
		}, labelFamily, labelEndpoint),
	serviceCounter("sluice_service_endpoint_bytes_total", "Bytes by endpoint and direction (in, out).",
		endpointsOf(func(e *traffic.Tally, sample sampleFunc) {
			sample(float64(e.BytesIn), "in")
			sample(float64(e.BytesOut), "out")
		}), labelFamily, labelEndpoint, "direction"),
	serviceCounter("sluice_service_endpoint_connect_failures_total", "Failed connection attempts by endpoint.",
		endpointsOf(func(e *traffic.Tally, sample sampleFunc) { sample(float64(e.Failures)) }), labelFamily, labelEndpoint),
}

// eachTracked visits the open connections of a Service by endpoint, in each family that serves it, as of the last
// reading of the connection table.
func (a *answer) eachTracked(r *state.Record, visit func(family string, open map[netip.AddrPort]uint64)) {
	if a.flows == nil {
		return
	}
	var open service.PerFamily[map[netip.AddrPort]uint64]
	for at, e := range a.flows.Services[r.Key].Endpoints {
		family := service.FamilyOf(at.Addr())
		if open[family] == nil {
			open[family] = map[netip.AddrPort]uint64{}
		}
		open[family][at] = e.Open
	}
	for _, family := range service.Families {
		if r.Families[family].Served {
			visit(family.String(), open[family])
		}
	}
}

// relayedOf visits what was passed on for a Service, in each family in which that is known.
func relayedOf(visit func(of *traffic.ServiceTally, family string, sample sampleFunc)) func(*answer, *state.Record, sampleFunc) {
	return func(a *answer, r *state.Record, sample sampleFunc) {
		if a.relays {
			a.eachCounted(r.Key, func(family string, of *traffic.ServiceTally) { visit(of, family, sample) })
		}
	}
}

// endpointsOf visits the endpoints of a Service. What visit samples has the labels of the family and
// the endpoint first.
func endpointsOf(visit func(e *traffic.Tally, sample sampleFunc)) func(*answer, *state.Record, sampleFunc) {
	return relayedOf(func(of *traffic.ServiceTally, family string, sample sampleFunc) {
		eachEndpoint(of.Endpoints, func(at string, e traffic.Tally) {
			visit(&e, func(value float64, labels ...string) { sample(value, append([]string{family, at}, labels...)...) })
		})
	})
}

var (
	relaySecondsDesc = prometheus.NewDesc("sluice_relay_connect_duration_seconds",
		"Time until an endpoint accepts a TCP connection.", nil, nil)
	relayOpenDesc = prometheus.NewDesc("sluice_relay_open_connections",
		"Open TCP connections and UDP sessions by protocol.", []string{"protocol"}, nil)
	relayRefusedDesc = prometheus.NewDesc("sluice_relay_refused_connections_total",
		"Rejected clients by reason: limit, unreachable, replaced.", []string{"reason"}, nil)
	relayRetriesDesc = prometheus.NewDesc("sluice_relay_connect_retries_total",
		"Failed connection attempts followed by an attempt at another endpoint.", nil, nil)
)

func relayDescs() []*prometheus.Desc {
	return []*prometheus.Desc{relaySecondsDesc, relayOpenDesc, relayRefusedDesc, relayRetriesDesc}
}

func (m *Metrics) collectRelay(to chan<- prometheus.Metric) {
	r := m.config.Relay()
	to <- prometheus.MustNewConstHistogram(relaySecondsDesc, r.Accepted, r.Seconds, r.Connects)
	for protocol, n := range r.Open {
		send(to, relayOpenDesc, prometheus.GaugeValue, float64(n), protocol)
	}
	for reason, n := range r.Refused {
		send(to, relayRefusedDesc, prometheus.CounterValue, float64(n), reason)
	}
	send(to, relayRetriesDesc, prometheus.CounterValue, float64(r.Retries))
}

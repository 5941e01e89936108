// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

func BenchmarkApplied(b *testing.B) {
	m := listed(b, 10_000)
	began := time.Now()
	keys := make([]service.Key, 10_000)
	for n := range keys {
		keys[n] = serviceKey(n)
	}
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		n++
		m.Aggregator(aggregator.Applied{Domain: domain4, At: time.Now(), Contribution: dataplane.Contribution{
			Key: keys[n%len(keys)], Trigger: began.Add(time.Second), Received: began,
		}})
	}
}

// BenchmarkScrape measures whole answers for 10,000 Services.
func BenchmarkScrape(b *testing.B) {
	m := listed(b, 10_000)
	for n := range 10_000 {
		view := service.View{Key: serviceKey(n)}
		view.Ports[service.IPv4] = []service.PortView{{HasAny: true}}
		m.Programmed(b.Context(), service.IPv4, view)
	}
	few := listedMetrics(b, 10_000)
	few.config.ServicesMax = 100
	for _, c := range []struct {
		name, path, accept string
		handler            http.Handler
	}{
		{"metrics", "/metrics", "", m.Handler()},
		{"metrics-100-Services", "/metrics", "", few.Handler()},
		{"metrics-protobuf", "/metrics", "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited", m.Handler()},
		{"services-all", "/metrics/services?limit=0", "", m.ServicesHandler()},
		{"services", "/metrics/services", "", m.ServicesHandler()},
		{"services-top-100", "/metrics/services?top=100", "", m.ServicesHandler()},
	} {
		b.Run(c.name, func(b *testing.B) {
			request := httptest.NewRequest(http.MethodGet, c.path, nil)
			request.Header.Set("Accept", c.accept)
			b.ReportAllocs()
			size := 0
			for b.Loop() {
				answer := &sized{header: http.Header{}}
				c.handler.ServeHTTP(answer, request)
				size = answer.bytes
			}
			b.ReportMetric(float64(size), "bytes")
		})
	}
}

// sized is an answer that only counts.
type sized struct {
	header http.Header
	bytes  int
}

func (s *sized) Header() http.Header { return s.header }
func (s *sized) WriteHeader(int)     {}
func (s *sized) Write(p []byte) (int, error) {
	s.bytes += len(p)
	return len(p), nil
}

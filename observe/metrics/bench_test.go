package metrics

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source"
	"github.com/sluice-proxy/sluice/supervisor"
)

func mustAddrPort(text string) netip.AddrPort { return netip.MustParseAddrPort(text) }

func noEvents() source.Events { return source.Events{} }

// bytesPerService measures the memory of a record, including its name.
func bytesPerService(m *Metrics, services int) float64 {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for n := range services {
		key := service.ParseKey(fmt.Sprintf("namespace-%d/service-%05d", n%100, n))
		m.Supervisor(supervisor.Event[service.Key]{Child: key, What: supervisor.Started{}})
		m.Aggregator(aggregator.Applied{Domain: domain4, At: time.Now(), Contribution: dataplane.Contribution{Key: key, Received: time.Now()}})
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	runtime.KeepAlive(m)
	return (float64(after.HeapAlloc) - float64(before.HeapAlloc)) / float64(services)
}

// perServiceMax is what a Service may cost here after its first change, in bytes.
const perServiceMax = 320

func TestAServiceCostsLittle(t *testing.T) {
	if got := bytesPerService(listedMetrics(t, 0), 20_000); got > perServiceMax || got < 50 {
		t.Errorf("a Service costs %.0f bytes, want at most %d", got, perServiceMax)
	}
}

func BenchmarkBytesPerService(b *testing.B) {
	for b.Loop() {
		b.ReportMetric(bytesPerService(listedMetrics(b, 0), 50_000), "bytes/service")
	}
}

func BenchmarkApplied(b *testing.B) {
	m := listedMetrics(b, 10_000)
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

func BenchmarkProgrammed(b *testing.B) {
	for _, endpoints := range []int{10, 1000} {
		b.Run(fmt.Sprint(endpoints), func(b *testing.B) {
			m := listedMetrics(b, 1000)
			port := service.PortView{HasAny: true}
			for i := range endpoints {
				port.Cluster = append(port.Cluster, service.Endpoint{AddrPort: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 80)})
			}
			view := service.View{Key: serviceKey(7)}
			view.Ports[service.IPv4] = []service.PortView{port}
			b.ReportAllocs()
			for b.Loop() {
				m.Programmed(context.Background(), service.IPv4, view)
			}
		})
	}
}

// BenchmarkScrape measures whole answers over 10,000 Services.
func BenchmarkScrape(b *testing.B) {
	m := listedMetrics(b, 10_000)
	m.Attach(func() []aggregator.Status { return []aggregator.Status{{Domain: domain4}} }, noEvents)
	for n := range 10_000 {
		view := service.View{Key: serviceKey(n)}
		view.Ports[service.IPv4] = []service.PortView{{HasAny: true}}
		m.Programmed(context.Background(), service.IPv4, view)
	}
	few := listedMetrics(b, 10_000)
	few.config.ServicesMax = 100
	few.Attach(func() []aggregator.Status { return []aggregator.Status{{Domain: domain4}} }, noEvents)
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

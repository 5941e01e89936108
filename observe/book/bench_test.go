// SPDX-License-Identifier: Apache-2.0

package book

import (
	"fmt"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/supervisor"
)

// bytesPerService measures the memory of a record, including its name.
func bytesPerService(b *Book, services int) float64 {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for n := range services {
		key := service.ParseKey(fmt.Sprintf("namespace-%d/service-%05d", n%100, n))
		b.Supervisor(supervisor.Event[service.Key]{Child: key, What: supervisor.Started{}})
		b.Aggregator(aggregator.Applied{Domain: domain4, At: time.Now(), Contribution: dataplane.Contribution{Key: key, Received: time.Now()}})
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	runtime.KeepAlive(b)
	return (float64(after.HeapAlloc) - float64(before.HeapAlloc)) / float64(services)
}

// perServiceMax is what a Service may cost here after its first change, in bytes.
const perServiceMax = 320

// TestBook_MemoryPerService: the memory per Service stays below the limit.
func TestBook_MemoryPerService(t *testing.T) {
	if got := bytesPerService(newBook(0), 20_000); got > perServiceMax || got < 50 {
		t.Errorf("a Service costs %.0f bytes, want at most %d", got, perServiceMax)
	}
}

func BenchmarkBytesPerService(b *testing.B) {
	for b.Loop() {
		b.ReportMetric(bytesPerService(newBook(0), 50_000), "bytes/service")
	}
}

func BenchmarkProgrammed(b *testing.B) {
	for _, endpoints := range []int{10, 1000} {
		b.Run(fmt.Sprint(endpoints), func(b *testing.B) {
			book := newBook(1000)
			port := service.PortView{HasAny: true}
			for i := range endpoints {
				port.Cluster = append(port.Cluster, service.Endpoint{AddrPort: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 80)})
			}
			view := service.View{Key: serviceKey(7)}
			view.Ports[service.IPv4] = []service.PortView{port}
			b.ReportAllocs()
			for b.Loop() {
				book.Programmed(b.Context(), service.IPv4, view)
			}
		})
	}
}

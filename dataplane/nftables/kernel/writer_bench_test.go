// SPDX-License-Identifier: Apache-2.0

package kernel_test

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/nftables/kernel"
	"github.com/sluice-proxy/sluice/service"
)

// sizes are numbers of Services and of endpoints of each.
var sizes = []struct{ services, endpoints int }{{1000, 10}, {10000, 10}, {50000, 10}, {44000, 1}, {5000, 50}}

// BenchmarkColdStart fills an empty kernel: render, account, write. docs/adr/0006-nftables-shape.md
// quotes the next one:
//
//	go test -run '^$' -bench . -benchtime 1x ./dataplane/nftables/kernel
//	go test -run '^$' -bench Change -benchtime 300x ./dataplane/nftables/kernel
func BenchmarkColdStart(b *testing.B) {
	for _, size := range sizes {
		b.Run(fmt.Sprintf("%dx%d", size.services, size.endpoints), func(b *testing.B) {
			var receipt dataplane.Receipt
			var read time.Duration
			for range b.N {
				b.StopTimer()
				w := newWorld(b, service.IPv4, kernel.WriterConfig{})
				b.StartTimer()
				w.fill(size.services, size.endpoints)
				receipt = w.commit()
				b.StopTimer()
				began := time.Now()
				w.restart(kernel.WriterConfig{})
				w.read()
				read = time.Since(began)
			}
			b.ReportMetric(float64(receipt.Written.Bytes), "bytes")
			b.ReportMetric(float64(receipt.Written.Calls), "transactions")
			b.ReportMetric(read.Seconds(), "s/read")
			b.ReportMetric(float64(receipt.Written.Objects), "objects")
		})
	}
}

// BenchmarkRead reads back what a previous process wrote, and compares.
func BenchmarkRead(b *testing.B) {
	for _, size := range sizes[:2] {
		b.Run(fmt.Sprintf("%dx%d", size.services, size.endpoints), func(b *testing.B) {
			w := newWorld(b, service.IPv4, kernel.WriterConfig{})
			w.fill(size.services, size.endpoints)
			w.commit()
			var observing time.Duration
			b.ReportAllocs()
			for b.Loop() {
				objects := w.read()
				began := time.Now()
				w.ledger.Observe(objects)
				observing += time.Since(began)
			}
			b.ReportMetric(float64(observing.Nanoseconds())/float64(b.N), "ns/compare")
		})
	}
}

// fill serves Services. The next commit writes them.
func (w *world) fill(services, endpoints int) {
	for n := range services {
		w.serve(plain(n, endpoints, 0))
	}
}

// BenchmarkChange changes one Service among many: it renders, accounts, plans and writes.
func BenchmarkChange(b *testing.B) {
	for _, size := range sizes {
		b.Run(fmt.Sprintf("%dx%d", size.services, size.endpoints), func(b *testing.B) {
			w := newWorld(b, service.IPv4, kernel.WriterConfig{})
			w.fill(size.services, size.endpoints)
			w.commit()
			runtime.GC()
			n, e := size.services, size.endpoints
			changes := 0
			next := func() int { changes++; return changes }
			w.bench(b, "endpoint-replaced", func() { i := next(); w.serve(plain(i*7%n, e, i)) })
			w.bench(b, "endpoint-added", func() { w.serve(plain(next()*11%n, e+1, 0)) })
			w.bench(b, "Service-removed", func() { w.want(plain(next()%n, e, 0).Key, nil) })
			w.bench(b, "Service-added", func() { w.serve(plain(n+next(), e, 0)) })
		})
	}
}

// bench measures from a change to the kernel's answer.
func (w *world) bench(b *testing.B, name string, change func()) {
	b.Run(name, func(b *testing.B) {
		var took []time.Duration
		var written dataplane.Written
		for range b.N {
			began := time.Now()
			change()
			written = written.Add(w.commit().Written)
			took = append(took, time.Since(began))
		}
		slices.Sort(took)
		b.ReportMetric(float64(took[len(took)/2].Microseconds()), "µs/p50")
		b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "µs/p99")
		b.ReportMetric(float64(written.Objects)/float64(b.N), "objects/op")
		b.ReportMetric(float64(written.Bytes)/float64(b.N), "bytes/op")
	})
}

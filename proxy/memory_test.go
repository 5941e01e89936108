// SPDX-License-Identifier: Apache-2.0

package proxy_test

import (
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-proxy/sluice/proxy"
	"github.com/sluice-proxy/sluice/source"
	"github.com/sluice-proxy/sluice/test/nftmodel"
)

// footprint is what a whole proxy with a number of idle Services of ten endpoints has.
type footprint struct {
	Goroutines int
	// Bytes are those of the heap and of stacks that live. The kernel in memory is one of
	// the things on the heap.
	Bytes int
}

func measureFootprint(t *testing.T, services int) (f footprint) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		domain := memoryDomain(nftmodel.NewKernel())
		var cache *source.Cache
		_, stop := run(t, proxy.Config{
			Domains: []proxy.Domain{domain},
			Source: filled(&cache, func(c *source.Cache) {
				for i := range services {
					c.SetSpec(workSpec(i))
					c.SetSlice(workSlice(i, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10))
				}
				c.Prime()
			}),
		})
		defer stop()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		f.Goroutines = runtime.NumGoroutine()
		runtime.GC()
		runtime.GC() // what the first one has put aside
		var at runtime.MemStats
		runtime.ReadMemStats(&at)
		f.Bytes = int(at.HeapAlloc + at.StackInuse)
		runtime.KeepAlive(cache)
	})
	return f
}

// TestProxy_IdleServiceMemory measures what 1,000 more Services cost: no goroutine, and at most 12 KiB each. This
// includes ten endpoints and their elements in the kernel model.
func TestProxy_IdleServiceMemory(t *testing.T) {
	const few, many = 200, 1200
	less, more := measureFootprint(t, few), measureFootprint(t, many)
	if more.Goroutines > less.Goroutines+10 {
		t.Errorf("%d goroutines for %d Services, %d for %d", less.Goroutines, few, more.Goroutines, many)
	}
	each := (more.Bytes - less.Bytes) / (many - few)
	t.Logf("%d bytes for each Service", each)
	if each > 12<<10 {
		t.Errorf("%d bytes for each Service, want 12 KiB at most", each)
	}
}

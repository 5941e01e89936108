package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"

	proxy "github.com/sluice-proxy/sluice"
	"github.com/sluice-proxy/sluice/internal/daemon/backend"
	"github.com/sluice-proxy/sluice/internal/host/sandbox"
	"github.com/sluice-proxy/sluice/observe"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source"
	"github.com/sluice-proxy/sluice/source/manifest"
)

// result is what one run has found. Times of changes count from the moment at
// which the manifest was replaced to the moment at which the write had landed.
type result struct {
	Domain             string
	Services           int
	Endpoints          int
	ColdStartSeconds   float64
	ResidentMiB        float64
	KiBPerService      float64
	StackKiBPerService float64
	ChangeMillis50     float64
	ChangeMillis99     float64
	PipelineMillis50   float64
	PipelineMillis99   float64
	ChangeObjects      int
	ChangeLines        int
	ChangeBytes        int
}

var hot = service.Key{Namespace: "bench", Name: "s0"}

func measure(ctx context.Context, o options) (r result, err error) {
	if err := sandbox.Enter(); err != nil {
		return r, err
	}
	dir, err := os.MkdirTemp("", "sluice-scale-")
	if err != nil {
		return r, err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary directory
	if err := writeManifests(dir, o); err != nil {
		return r, err
	}
	domains, err := chosen(ctx, o)
	if err != nil {
		return r, err
	}
	// One family is measured, so that the figures are those of one domain.
	domains = slices.DeleteFunc(domains, func(d proxy.Domain) bool { return !strings.HasSuffix(d.Name, "/IPv4") })
	w := newWatch(domains[0].Name)
	p, err := proxy.New(proxy.Config{
		Node: proxy.NodeSettings{Name: "bench"}, Domains: domains, Listeners: []observe.Listener{w},
		Source: func(ctx context.Context, cache *source.Cache) error {
			return manifest.New(dir, cache, "bench", manifest.Options{}).Run(ctx)
		},
	})
	if err != nil {
		return r, err
	}
	r = result{Domain: domains[0].Name, Services: o.services, Endpoints: o.endpoints}
	heap, stack := memory()
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	began := time.Now()
	go func() { done <- p.Run(ctx) }()
	defer func() {
		cancel()
		if stopErr := <-done; err == nil {
			err = stopErr
		}
	}()
	if err := w.await(ctx, "the cold start", func() bool { return len(w.applied) >= o.services+1 }); err != nil {
		return r, err
	}
	r.ColdStartSeconds = w.last.Sub(began).Seconds()
	r.remember(heap, stack)
	return r, r.change(ctx, o, dir, w)
}

// chosen builds the domains of the backend to measure.
func chosen(ctx context.Context, o options) ([]proxy.Domain, error) {
	if o.mode == "nftables" {
		return backend.NFTables(ctx, backend.NFTablesOptions{MasqueradeBit: 14, Log: zap.NewNop()})
	}
	return backend.IPTables(ctx, backend.IPTablesOptions{Variant: o.variant, MasqueradeBit: 14, Log: zap.NewNop()})
}

// remember takes the memory after everything has come to rest.
func (r *result) remember(heapBefore, stackBefore uint64) {
	heap, stack := memory()
	n := float64(r.Services) * 1024
	r.KiBPerService = (float64(heap+stack) - float64(heapBefore+stackBefore)) / n
	r.StackKiBPerService = (float64(stack) - float64(stackBefore)) / n
	r.ResidentMiB = resident()
}

// memory returns the bytes in use by heap and stacks after collecting: stacks
// shrink by half at each collection, so it takes a few.
func memory() (heap, stack uint64) {
	for range 4 {
		runtime.GC()
	}
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc, m.StackInuse
}

// resident is VmRSS in MiB (proc_pid_status(5)).
func resident() float64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, _ := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			return kib / 1024
		}
	}
	return 0
}

// change replaces the last endpoint of one Service again and again.
func (r *result) change(ctx context.Context, o options, dir string, w *watch) error {
	if o.endpoints == 0 || o.changes == 0 {
		return nil
	}
	var took, pipeline []time.Duration
	for i := range o.changes {
		began := time.Now()
		if err := writeFile(filepath.Join(dir, "hot.yaml"), o, 0, 1, 1+i%2); err != nil {
			return err
		}
		if err := w.await(ctx, fmt.Sprintf("change %d", i), func() bool { return w.applied[hot].After(began) }); err != nil {
			return err
		}
		w.mu.Lock()
		took, pipeline = append(took, w.applied[hot].Sub(began)), append(pipeline, w.latency)
		w.mu.Unlock()
	}
	r.ChangeMillis50, r.ChangeMillis99 = quantiles(took)
	r.PipelineMillis50, r.PipelineMillis99 = quantiles(pipeline)
	r.ChangeObjects, r.ChangeLines, r.ChangeBytes = w.written.Objects, w.written.Lines, w.written.Bytes
	return nil
}

// quantiles returns the median and the 99th percentile in milliseconds.
func quantiles(d []time.Duration) (p50, p99 float64) {
	slices.Sort(d)
	at := func(q float64) float64 { return d[int(q*float64(len(d)-1))].Seconds() * 1000 }
	return at(0.5), at(0.99)
}

package proxy_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	proxy "github.com/sluice-proxy/sluice"
	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/nftables"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source"
	"github.com/sluice-proxy/sluice/test/nftmodel"
)

// deaf is a writer that cannot watch the first times.
type deaf struct {
	dataplane.Writer
	times atomic.Int32
}

func (d *deaf) Watch(ctx context.Context, _ func(dataplane.Stranger)) error {
	if d.times.Add(1) <= 3 {
		return errors.New("no descriptor left")
	}
	<-ctx.Done()
	return ctx.Err()
}

// TestAFailingWatchEndsNothing: it is said, and tried again after pauses that double.
func TestAFailingWatchEndsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		writer := &deaf{Writer: nftmodel.NewKernel().Writer(service.IPv4)}
		var failed atomic.Int32
		p, err := proxy.New(proxy.Config{
			Node: proxy.NodeSettings{Name: "n1"},
			Domains: []proxy.Domain{{
				Name: "memory/IPv4", Writer: writer,
				Renderer: nftables.NewRenderer(service.IPv4, nftables.Options{MasqueradeBit: 14}),
			}},
			Source:      func(ctx context.Context, _ *source.Cache) error { <-ctx.Done(); return nil },
			WatchFailed: func(domain string, err error) { failed.Add(1) },
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- p.Run(ctx) }()
		time.Sleep(7*time.Second - 1) // 1 + 2 + 4
		synctest.Wait()
		if watched := writer.times.Load(); watched != 3 || failed.Load() != 3 {
			t.Errorf("tried %d times, and said %d times", watched, failed.Load())
		}
		time.Sleep(time.Minute)
		if watched := writer.times.Load(); watched != 4 || failed.Load() != 3 {
			t.Errorf("in the end tried %d times, and said %d times", watched, failed.Load())
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

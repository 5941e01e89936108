package proxy_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	proxy "github.com/sluice-proxy/sluice"
	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/dataplane/iptables"
	"github.com/sluice-proxy/sluice/dataplane/memory"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source"
)

// More Services than there is room for used to hold up the first write for the whole
// of its patience, and lost the rules of those for whom there was none, although the
// API still had them.
func TestServicesForWhichThereIsNoRoomHoldUpNobodyAndKeepTheirRules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const services, room = 12, 5
		kernel := memory.NewKernel(service.IPv4)
		served := func() (count int) {
			rules, _ := kernel.Rules(iptables.NAT, "KUBE-SERVICES")
			for _, rule := range rules {
				if strings.Contains(rule, "cluster IP") {
					count++
				}
			}
			return count
		}
		run := func(most int, while func(*source.Cache)) {
			var cache *source.Cache
			p, err := proxy.New(proxy.Config{
				Node: proxy.NodeSettings{Name: "n1"}, MaxServices: most, GateWait: time.Hour,
				Domains: []proxy.Domain{{
					Name: "memory/IPv4", Layout: iptables.NewLayout(service.IPv4),
					Renderer: iptables.NewRenderer(service.IPv4, iptables.Options{MasqueradeBit: 14}),
					Writer:   iptables.NewWriter(service.IPv4, kernel, iptables.WriterConfig{}),
					Pace:     aggregator.Pace{Audit: 24 * time.Hour},
				}},
				Source: func(ctx context.Context, c *source.Cache) error { cache = c; <-ctx.Done(); return nil },
			})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(context.Background())
			done := make(chan error, 1)
			go func() { done <- p.Run(ctx) }()
			synctest.Wait()
			for i := range services {
				cache.SetSpec(workSpec(i))
				cache.SetSlice(workSlice(i, 1))
			}
			cache.Prime()
			time.Sleep(time.Second)
			while(cache)
			cancel()
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		}
		run(services, func(*source.Cache) {
			if got := served(); got != services {
				t.Fatalf("%d of %d Services are served", got, services)
			}
		})
		run(room, func(cache *source.Cache) {
			if got := served(); got != services {
				t.Fatalf("with room for %d, %d of %d Services are served", room, got, services)
			}
			for i := range services {
				cache.RemoveSpec(workSpec(i).Key)
			}
			time.Sleep(time.Minute)
			if got := served(); got != 0 {
				t.Errorf("%d Services that are gone are served", got)
			}
		})
	})
}

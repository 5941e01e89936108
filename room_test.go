package proxy_test

import (
	"context"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	proxy "github.com/sluice-proxy/sluice"
	"github.com/sluice-proxy/sluice/actors"
	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/dataplane/nftables"
	"github.com/sluice-proxy/sluice/observe"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source"
	"github.com/sluice-proxy/sluice/supervisor"
	"github.com/sluice-proxy/sluice/test/nftmodel"
)

// More Services than there is room for used to hold up the first write for the whole
// of its patience, and lost the rules of those for whom there was none, although the
// API still had them.
func TestServicesForWhichThereIsNoRoomHoldUpNobodyAndKeepTheirRules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const services, room = 12, 5
		kernel := nftmodel.NewKernel()
		served := func() (count int) {
			for _, item := range kernel.Items(service.IPv4) {
				if item.Set == "frontends" && item.Key != "" {
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
					Name:     "memory/IPv4",
					Renderer: nftables.NewRenderer(service.IPv4, nftables.Options{MasqueradeBit: 14}),
					Writer:   kernel.Writer(service.IPv4),
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

// shadowed counts the frontends that Services have been told to have lost.
type shadowed struct{ frontends atomic.Int32 }

func (*shadowed) Supervisor(supervisor.Event) {}
func (*shadowed) Actors(actors.Event)         {}

func (s *shadowed) Aggregator(e aggregator.Event) {
	if e, ok := e.(aggregator.Shadowed); ok {
		s.frontends.Add(int32(len(e.Frontends)))
	}
}

// TestTwoServicesAtOneFrontendDoNotMix: what the backend's naming says of its objects
// comes to the ledger. Of the younger Service, which has more endpoints, nothing is at
// the frontend that the older one has.
func TestTwoServicesAtOneFrontendDoNotMix(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kernel, told := nftmodel.NewKernel(), &shadowed{}
		writer := kernel.Writer(service.IPv4)
		external := netip.MustParseAddr("192.0.2.1")
		spec := func(i int) *service.Spec {
			s := workSpec(i)
			s.Created = time.Unix(int64(i), 0)
			s.ExternalIPs[service.IPv4] = []netip.Addr{external}
			return s
		}
		var cache *source.Cache
		p, err := proxy.New(proxy.Config{
			Node: proxy.NodeSettings{Name: "n1"}, Listeners: []observe.Listener{told},
			Domains: []proxy.Domain{{
				Name: "memory/IPv4", Renderer: nftables.NewRenderer(service.IPv4, nftables.Options{MasqueradeBit: 14}),
				Writer: writer, Pace: aggregator.Pace{Audit: 24 * time.Hour},
			}},
			Source: func(ctx context.Context, c *source.Cache) error {
				c.SetSpec(spec(1))
				c.SetSlice(workSlice(1, 1))
				c.Prime()
				cache = c
				<-ctx.Done()
				return nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- p.Run(ctx) }()
		atFrontend := func() (count int) {
			time.Sleep(10 * time.Second)
			synctest.Wait()
			objects, err := writer.Read(ctx)
			if err != nil {
				t.Fatal(err)
			}
			for i := range objects {
				if strings.HasPrefix(objects[i].ID.Name, string(external.AsSlice())) {
					count++
				}
			}
			return count
		}
		alone := atFrontend()
		cache.SetSlice(workSlice(2, 1, 2, 3, 4, 5))
		cache.SetSpec(spec(2))
		if both := atFrontend(); alone < 2 || both != alone || told.frontends.Load() != 1 {
			t.Errorf("%d elements of the older Service alone, %d of both; %d frontends are told to be lost, want 1",
				alone, both, told.frontends.Load())
		}
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	})
}

package proxy_test

import (
	"context"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	proxy "github.com/sluice-proxy/sluice"
	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/dataplane/nftables"
	"github.com/sluice-proxy/sluice/observe"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source"
	"github.com/sluice-proxy/sluice/test/nftmodel"
)

// Nothing is rendered for a Service before everything that its rules depend on
// is known: the endpoints, the host's addresses, and the Node.
func TestActorsLiveOnceThePictureIsWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &meter{Renderer: nftables.NewRenderer(service.IPv4, nftables.Options{MasqueradeBit: 14})}
		var cache *source.Cache
		var addresses func([]netip.Addr)
		p, err := proxy.New(proxy.Config{
			Node: proxy.NodeSettings{Name: "n1", NodePortRanges: []netip.Prefix{netip.MustParsePrefix("192.168.0.0/24")}},
			Domains: []proxy.Domain{{
				Name: "memory/IPv4", Renderer: m,
				Writer: nftmodel.NewKernel().Writer(service.IPv4),
				Pace:   aggregator.Pace{Audit: 24 * time.Hour},
			}},
			Source: func(ctx context.Context, c *source.Cache) error { cache = c; <-ctx.Done(); return nil },
			HostAddresses: func(ctx context.Context, changed func([]netip.Addr)) error {
				addresses = changed
				<-ctx.Done()
				return nil
			},
			NodeWait: time.Minute, Listeners: []observe.Listener{m},
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- p.Run(ctx) }()
		quiet := func(what string) {
			t.Helper()
			time.Sleep(10 * time.Second)
			synctest.Wait()
			if w := m.take(); w != (work{}) {
				t.Fatalf("%s: %+v was done", what, w)
			}
		}
		quiet("before anything is known")
		cache.SetSpec(workSpec(1))
		cache.SetSlice(workSlice(1, 1))
		quiet("Services known, but not all")
		cache.Prime()
		quiet("primed without the host's addresses")
		addresses([]netip.Addr{netip.MustParseAddr("192.168.0.2")})
		quiet("still without the Node")
		cache.SetNode(&service.NodeObject{Name: "n1", Zone: "za"})
		synctest.Wait()
		if w := m.take(); w.Services != 1 || w.Written.Calls == 0 {
			t.Fatalf("with everything known: %+v", w)
		}
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	})
}

func TestWithoutItsNodeTheProxyStartsInTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &meter{Renderer: nftables.NewRenderer(service.IPv4, nftables.Options{MasqueradeBit: 14})}
		p, err := proxy.New(proxy.Config{
			Node: proxy.NodeSettings{Name: "n1"},
			Domains: []proxy.Domain{{
				Name: "memory/IPv4", Renderer: m,
				Writer: nftmodel.NewKernel().Writer(service.IPv4),
			}},
			Source: func(ctx context.Context, c *source.Cache) error {
				c.SetSpec(workSpec(1))
				c.Prime()
				<-ctx.Done()
				return nil
			},
			NodeWait: time.Minute, Listeners: []observe.Listener{m},
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- p.Run(ctx) }()
		time.Sleep(59 * time.Second)
		synctest.Wait()
		if w := m.take(); w != (work{}) {
			t.Fatalf("before the wait is over: %+v", w)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if w := m.take(); w.Services != 1 {
			t.Fatalf("after it: %+v", w)
		}
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	})
}

func TestConfigErrorsSayWhatIsMissing(t *testing.T) {
	for _, bad := range []proxy.Config{
		{},
		{Node: proxy.NodeSettings{Name: "n1"}},
		{Node: proxy.NodeSettings{Name: "n1"}, Source: func(context.Context, *source.Cache) error { return nil }},
		{Node: proxy.NodeSettings{Name: "n1"}, Source: func(context.Context, *source.Cache) error { return nil }, Domains: []proxy.Domain{{Name: "x"}}},
	} {
		if _, err := proxy.New(bad); err == nil {
			t.Errorf("accepted %+v", bad)
		}
	}
}

// follower notes what it is told, by family.
type follower struct{ told chan service.View }

func (f *follower) Programmed(_ service.Family, view service.View) { f.told <- view }

// Other settings are put into force without a restart, and followers are told what
// is in force: what rules do not depend on is not written, and not told again.
func TestReconfigureInPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &meter{Renderer: nftables.NewRenderer(service.IPv4, nftables.Options{MasqueradeBit: 14})}
		f := &follower{told: make(chan service.View, 100)}
		settings := proxy.NodeSettings{Name: "n1"}
		p, err := proxy.New(proxy.Config{
			Node: settings,
			Domains: []proxy.Domain{{
				Name: "memory/IPv4", Family: service.IPv4, Renderer: m,
				Writer: nftmodel.NewKernel().Writer(service.IPv4),
				Pace:   aggregator.Pace{Audit: 24 * time.Hour},
			}, {
				Name: "beside", Family: service.IPv4, Auxiliary: true, Renderer: m,
				Writer: nftmodel.NewKernel().Writer(service.IPv4),
				Pace:   aggregator.Pace{Audit: 24 * time.Hour},
			}},
			Source: func(ctx context.Context, c *source.Cache) error {
				c.SetSpec(workSpec(1))
				c.SetSlice(workSlice(1, 1))
				c.SetNode(&service.NodeObject{Name: "n1", Zone: "za"})
				c.Prime()
				<-ctx.Done()
				return nil
			},
			Followers: []proxy.Follower{f}, Listeners: []observe.Listener{m},
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- p.Run(ctx) }()
		select {
		case <-p.InForce():
			t.Error("the rules are said to be in force before anything ran")
		default:
		}
		settle := func() work {
			time.Sleep(10 * time.Second)
			synctest.Wait()
			return m.take()
		}
		if settle(); len(f.told) != 1 || len((<-f.told).Ports[service.IPv4]) != 1 {
			t.Fatalf("told %d more times of one Service in one domain that counts", len(f.told))
		}
		select {
		case <-p.InForce():
		default:
			t.Error("the rules are not said to be in force")
		}
		if p.Facts().Zone != "za" {
			t.Errorf("facts %+v", p.Facts())
		}
		if node := p.Node(); node == nil || node.Zone != "za" {
			t.Errorf("node %+v", node)
		}
		settings.MasqueradeAll = true
		if err := p.Reconfigure(settings); err != nil {
			t.Fatal(err)
		}
		if w := settle(); w.Written.Calls == 0 {
			t.Errorf("other settings changed no rule: %+v", w)
		}
		if err := p.Reconfigure(settings); err != nil {
			t.Fatal(err)
		}
		if w := settle(); w != (work{}) {
			t.Errorf("the same settings did %+v", w)
		}
		for name, wrong := range map[string]proxy.NodeSettings{
			"node name":         {Name: "n2"},
			"detect-local mode": {Name: "n1", DetectLocal: "Guess"},
		} {
			if err := p.Reconfigure(wrong); err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("%+v: %v", wrong, err)
			}
		}
		if w := settle(); w != (work{}) {
			t.Errorf("refused settings did %+v", w)
		}
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	})
}

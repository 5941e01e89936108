// SPDX-License-Identifier: Apache-2.0

package proxy_test

import (
	"context"
	"errors"
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/observe"
	"github.com/sluice-proxy/sluice/proxy"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source"
	"github.com/sluice-proxy/sluice/test/nftmodel"
)

// TestProxy_ActorsStartOnceAllKnown: no Service is rendered before all Services and endpoints, the host's addresses and
// the Node are known.
func TestProxy_ActorsStartOnceAllKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, domain := metered()
		var cache *source.Cache
		var addresses func([]netip.Addr)
		_, stop := run(t, proxy.Config{
			Node:    proxy.NodeSettings{Name: "n1", NodePortRanges: []netip.Prefix{netip.MustParsePrefix("192.168.0.0/24")}},
			Domains: []proxy.Domain{domain},
			Source:  filled(&cache, func(*source.Cache) {}),
			HostAddresses: func(ctx context.Context, changed func([]netip.Addr)) error {
				addresses = changed
				<-ctx.Done()
				return nil
			},
			NodeWait: time.Minute, Listeners: []observe.Listener{m},
		})
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
		cache.SetSpec(workSpec(2))
		cache.RemoveSpec(workSpec(1).Key)
		quiet("still without the Node")
		cache.SetNode(&service.NodeObject{Name: "n1", Zone: "za"})
		synctest.Wait()
		if w := m.take(); w.Services != 1 || w.Written.Calls == 0 {
			t.Fatalf("with everything known: %+v, want the one Service that exists now", w)
		}
		stop()
	})
}

// TestProxy_StartsWithoutNode: a proxy whose Node never appears starts after the configured wait.
func TestProxy_StartsWithoutNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, domain := metered()
		var cache *source.Cache
		_, stop := run(t, proxy.Config{
			Domains: []proxy.Domain{domain},
			Source: filled(&cache, func(c *source.Cache) {
				c.SetSpec(workSpec(1))
				c.Prime()
			}),
			NodeWait: time.Minute, Listeners: []observe.Listener{m},
		})
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
		stop()
	})
}

// TestProxy_SeededNodeDeleted: a Node seeded by the previous process stays in use when the source reports it as
// deleted, and rendering does not wait for it.
func TestProxy_SeededNodeDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, domain := metered()
		var cache *source.Cache
		p, err := proxy.New(proxy.Config{
			Node: proxy.NodeSettings{Name: "n1"}, Domains: []proxy.Domain{domain},
			Source: filled(&cache, func(c *source.Cache) {
				c.SetSpec(workSpec(1))
				c.RemoveNode()
				c.Prime()
			}),
			NodeWait: time.Minute, Listeners: []observe.Listener{m},
		})
		if err != nil {
			t.Fatal(err)
		}
		p.SeedNode(&service.NodeObject{Name: "n1", Zone: "za"})
		stop := running(t, p)
		synctest.Wait()
		if w := m.take(); w.Services != 1 {
			t.Errorf("at the start: %+v", w)
		}
		if node := p.Node(); node == nil || !node.Deleted || p.Facts().Zone != "za" {
			t.Errorf("the Node is %+v, and the facts are %+v", node, p.Facts())
		}
		stop()
	})
}

// TestConfig_Incomplete: New rejects incomplete and invalid configurations.
func TestConfig_Incomplete(t *testing.T) {
	node := proxy.NodeSettings{Name: "n1"}
	nothing := func(context.Context, *source.Cache) error { return nil }
	_, domain := metered()
	for _, bad := range []proxy.Config{
		{},
		{Node: proxy.NodeSettings{Name: "n1", DetectLocal: "Guess"}, Source: nothing, Domains: []proxy.Domain{domain}},
		{Node: proxy.NodeSettings{Name: "n1", DetectLocal: proxy.DetectBridgeInterface}, Source: nothing, Domains: []proxy.Domain{domain}},
		{Node: node},
		{Node: node, Source: nothing},
		{Node: node, Source: nothing, Domains: []proxy.Domain{{Name: "x"}}},
	} {
		if _, err := proxy.New(bad); err == nil {
			t.Errorf("accepted %+v", bad)
		}
	}
}

// applyObserver keeps the views that it receives.
type applyObserver struct{ told chan service.View }

func (o *applyObserver) Programmed(_ context.Context, _ service.Family, view service.View) {
	o.told <- view
}

// TestProxy_NodeChangesInPlace: a changed Node is applied without a restart, and observers are told of the applied
// view. A change that no rule depends on is neither written nor reported.
func TestProxy_NodeChangesInPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, domain := metered()
		beside := memoryDomain(nftmodel.NewKernel())
		beside.Name, beside.Auxiliary = "beside", true
		o := &applyObserver{told: make(chan service.View, 100)}
		settings := proxy.NodeSettings{Name: "n1", DetectLocal: proxy.DetectNodeCIDR}
		var cache *source.Cache
		p, stop := run(t, proxy.Config{
			Node: settings, Domains: []proxy.Domain{domain, beside},
			Source: filled(&cache, func(c *source.Cache) {
				c.SetSpec(workSpec(1))
				c.SetSlice(workSlice(1, 1))
				c.SetNode(&service.NodeObject{Name: "n1", Zone: "za"})
				c.Prime()
			}),
			ApplyObservers: []proxy.ApplyObserver{{Programmed: o.Programmed}}, Listeners: []observe.Listener{m},
		})
		select {
		case <-p.FirstSync():
			t.Error("the rules are said to be applied before anything ran")
		default:
		}
		settle := func() work {
			time.Sleep(10 * time.Second)
			synctest.Wait()
			return m.take()
		}
		if settle(); len(o.told) != 1 || len((<-o.told).Ports[service.IPv4]) != 1 {
			t.Fatalf("told %d more times of one Service in one domain that counts", len(o.told))
		}
		select {
		case <-p.FirstSync():
		default:
			t.Error("the rules are not said to be applied")
		}
		if p.Facts().Zone != "za" {
			t.Errorf("facts %+v", p.Facts())
		}
		if node := p.Node(); node == nil || node.Zone != "za" {
			t.Errorf("node %+v", node)
		}
		node := service.NodeObject{Name: "n1", Zone: "za"}
		node.PodCIDRs[service.IPv4] = netip.MustParsePrefix("10.244.1.0/24")
		cache.SetNode(&node)
		if w := settle(); w.Written.Calls == 0 {
			t.Errorf("other pod CIDRs changed no rule: %+v", w)
		}
		again := node
		cache.SetNode(&again)
		if w := settle(); w != (work{}) {
			t.Errorf("the same Node did %+v", w)
		}
		stop()
	})
}

// TestProxy_FailingWatchRetried: a failing watch is reported and retried after pauses that double.
func TestProxy_FailingWatchRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		domain := memoryDomain(nftmodel.NewKernel())
		var times, failed atomic.Int32
		domain.Writer.Watch = func(ctx context.Context, _ func(dataplane.ForeignProcess)) error {
			if times.Add(1) <= 3 {
				return errors.New("no descriptor left")
			}
			<-ctx.Done()
			return ctx.Err()
		}
		var cache *source.Cache
		_, stop := run(t, proxy.Config{
			Domains: []proxy.Domain{domain}, Source: filled(&cache, func(*source.Cache) {}),
			WatchFailed: func(domain string, err error) { failed.Add(1) },
		})
		time.Sleep(7*time.Second - 1) // 1 + 2 + 4
		synctest.Wait()
		if watched := times.Load(); watched != 3 || failed.Load() != 3 {
			t.Errorf("tried %d times, reported %d times", watched, failed.Load())
		}
		time.Sleep(time.Minute)
		if watched := times.Load(); watched != 4 || failed.Load() != 3 {
			t.Errorf("in the end tried %d times, reported %d times", watched, failed.Load())
		}
		stop()
	})
}

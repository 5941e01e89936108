// SPDX-License-Identifier: Apache-2.0

package proxy_test

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/proxy"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// clerk renders nothing. It notes the facts of each key's last rendering.
type clerk struct {
	mu   sync.Mutex
	last map[service.Key]*service.NodeFacts
}

func (c *clerk) note(key service.Key, facts *service.NodeFacts) []dataplane.Object {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last[key] = facts
	return nil
}

func (c *clerk) Service(ctx context.Context, view *service.View, facts *service.NodeFacts) []dataplane.Object {
	return c.note(view.Key, facts)
}

func (c *clerk) Node(facts *service.NodeFacts) []dataplane.Object { return c.note(service.Node, facts) }

func (c *clerk) Naming() dataplane.Naming { return nil }

// behind counts the keys whose last rendering was on other facts than the present.
func (c *clerk) behind(now *service.NodeFacts) (old, all int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, facts := range c.last {
		if !facts.Equal(now) {
			old++
		}
	}
	return old, len(c.last)
}

// emptyKernel holds nothing, and nothing is written to it.
var emptyKernel = dataplane.Writer{
	Write: func(context.Context, *dataplane.Batch) dataplane.Receipt {
		return dataplane.Receipt{Outcome: dataplane.Landed}
	},
	Read: func(context.Context) ([]dataplane.Object, error) { return nil, nil },
}

// TestFacts_EveryActorEndsOnCurrent: every actor ends on the current facts when the Node, the host's addresses and the
// ClusterIP ranges change on separate goroutines.
func TestFacts_EveryActorEndsOnCurrent(t *testing.T) {
	const services, rounds, changes = 500, 8, 3
	c := &clerk{last: map[service.Key]*service.NodeFacts{}}
	settings := proxy.NodeSettings{Name: "n1", HostAddresses: true}
	var cache *source.Cache
	var addresses func([]netip.Addr)
	ready := make(chan struct{}, 2)
	p, stop := run(t, proxy.Config{
		Node: settings,
		Domains: []proxy.Domain{{Name: "none", Renderer: c, Writer: emptyKernel,
			Pace: aggregator.Pace{Audit: 24 * time.Hour}}},
		Source: func(ctx context.Context, filled *source.Cache) error {
			cache = filled
			for i := range services {
				cache.SetSpec(workSpec(i))
			}
			cache.Prime()
			ready <- struct{}{}
			<-ctx.Done()
			return nil
		},
		HostAddresses: func(ctx context.Context, changed func([]netip.Addr)) error {
			addresses = changed
			changed(nil)
			ready <- struct{}{}
			<-ctx.Done()
			return nil
		},
	})
	defer stop()
	<-ready
	<-ready
	c.settle(t, p, services+1, "at the start")

	kinds := []func(n byte){
		func(n byte) { cache.SetNode(&service.NodeObject{Name: "n1", Zone: fmt.Sprint("z", n)}) },
		func(n byte) { addresses([]netip.Addr{netip.AddrFrom4([4]byte{192, 168, n, 1})}) },
		func(n byte) {
			cache.SetServiceCIDR("range", []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, n, 0, 0}), 16)})
		},
	}
	for round := range rounds {
		var changing sync.WaitGroup
		for _, change := range kinds {
			changing.Go(func() {
				for i := range changes {
					change(byte(round*changes + i + 1))
				}
			})
		}
		changing.Wait()
		c.settle(t, p, services+1, fmt.Sprintf("round %d", round))
	}
}

// settle waits until every actor is on the current facts.
func (c *clerk) settle(t *testing.T, p *proxy.Proxy, want int, when string) {
	t.Helper()
	testenv.Eventually(t, when+": every actor is on the current facts", func() bool {
		old, all := c.behind(p.Facts())
		return old == 0 && all == want
	})
}

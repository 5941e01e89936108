// SPDX-License-Identifier: Apache-2.0

package proxy_test

import (
	"context"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/ledger"
	"github.com/sluice-proxy/sluice/proxy"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source"
	"github.com/sluice-proxy/sluice/test/nftmodel"
)

// endpointOf is an endpoint of workSlice.
func endpointOf(i int, host byte) netip.AddrPort {
	return netip.AddrPortFrom(workSlice(i, host).Endpoints[0].Addr, 8080)
}

// senders searches for an endpoint.
func senders(t *testing.T, p *proxy.Proxy, at netip.AddrPort) ([]service.Key, error) {
	sought := &ledger.Sought{At: at}
	err := p.Search(t.Context(), "memory/IPv4", []*ledger.Sought{sought})
	return sought.By, err
}

// TestEndpoint_GoneFromKernel: an endpoint that a search reports as unused is no longer in the kernel, even if slots of
// the same Service change during the search.
func TestEndpoint_GoneFromKernel(t *testing.T) {
	const services = 40
	synctest.Test(t, func(t *testing.T) {
		kernel := nftmodel.NewKernel()
		var cache *source.Cache
		p, stop := run(t, proxy.Config{Domains: []proxy.Domain{memoryDomain(kernel)}, Source: filled(&cache, func(c *source.Cache) {
			for i := range services {
				c.SetSpec(workSpec(i))
				c.SetSlice(workSlice(i, 1, 2, 3, 4, 5))
			}
			c.Prime()
		})})
		if _, err := senders(t, p, endpointOf(0, 1)); err != aggregator.ErrUnread {
			t.Errorf("before the first read: %v", err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		random := rand.New(rand.NewPCG(1, 2))
		early, late := 0, 0
		for i := range services {
			leaving := endpointOf(i, 1)
			if by, err := senders(t, p, leaving); err != nil || !slices.Equal(by, []service.Key{workSpec(i).Key}) {
				t.Fatalf("in use: %v, %v", by, err)
			}
			cache.SetSlice(workSlice(i, 2, 3, 4, 5))
			for churned := byte(10); ; churned++ {
				by, err := senders(t, p, leaving)
				switch left := !reaches(kernel, i, leaving); {
				case err != nil:
					t.Fatal(err)
				case len(by) > 0 && left:
					late++
				case len(by) > 0:
					early++
				case !left:
					t.Fatalf("Service %d: %v is gone, and the kernel sends there", i, leaving)
				}
				if len(by) == 0 {
					break
				}
				cache.SetSlice(workSlice(i, 2, 3, churned)) // other endpoints move to other slots
				time.Sleep(time.Duration(random.IntN(int(time.Millisecond))))
				if churned > 200 {
					t.Fatalf("%v is never gone", leaving)
				}
			}
		}
		t.Logf("%d answers that it is in use while it was, %d later", early, late)
		stop()
	})
}

// TestEndpoint_InUseWhileQuarantined: an endpoint of a quarantined Service is reported as in use until the kernel
// accepts the Service's rules.
func TestEndpoint_InUseWhileQuarantined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kernel := nftmodel.NewKernel()
		d := memoryDomain(kernel)
		d.Pace.Audit = 30 * time.Second // a Service in quarantine is tried again after each
		stumbles := stumblingWriter{d.Writer, workSpec(1).Key, dataplane.Rejected}
		rejecting := &switched{stumblingWriter: stumbles}
		d.Writer.Write = rejecting.Write
		var cache *source.Cache
		p, stop := run(t, proxy.Config{Domains: []proxy.Domain{d}, Source: filled(&cache, func(c *source.Cache) {
			for i := range 3 {
				c.SetSpec(workSpec(i))
				c.SetSlice(workSlice(i, 1, 2))
			}
			c.Prime()
		})})
		time.Sleep(time.Minute)
		synctest.Wait()
		rejecting.on.Store(true)
		cache.SetSlice(workSlice(0, 2))
		cache.SetSlice(workSlice(1, 2, 3))
		time.Sleep(time.Minute)
		synctest.Wait()
		if q := p.Status()[0].Quarantined; len(q) != 1 {
			t.Fatalf("in quarantine: %v", q)
		}
		if by, err := senders(t, p, endpointOf(0, 1)); err != nil || len(by) != 0 {
			t.Errorf("another Service: %v, %v", by, err)
		}
		if by, err := senders(t, p, endpointOf(1, 1)); err != nil || !slices.Equal(by, []service.Key{workSpec(1).Key}) || !reaches(kernel, 1, endpointOf(1, 1)) {
			t.Errorf("in quarantine: %v, %v", by, err)
		}
		rejecting.on.Store(false)
		time.Sleep(10 * time.Minute)
		if by, err := senders(t, p, endpointOf(1, 1)); err != nil || len(by) != 0 || reaches(kernel, 1, endpointOf(1, 1)) {
			t.Errorf("afterwards: %v, %v", by, err)
		}
		stop()
		if _, err := senders(t, p, endpointOf(1, 1)); err != aggregator.ErrEnded {
			t.Errorf("after the end: %v", err)
		}
	})
}

// switched is a stumblingWriter that can be switched on and off.
type switched struct {
	stumblingWriter
	on atomic.Bool
}

func (w *switched) Write(ctx context.Context, b *dataplane.Batch) dataplane.Receipt {
	if w.on.Load() {
		return w.stumblingWriter.Write(ctx, b)
	}
	return w.Writer.Write(ctx, b)
}

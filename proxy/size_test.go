// SPDX-License-Identifier: Apache-2.0

package proxy_test

import (
	"context"
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/proxy"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source"
	"github.com/sluice-proxy/sluice/test/nftmodel"
)

// limited are the settings of a node where a Service with one endpoint may have 50 frontends.
var limited = proxy.NodeSettings{Limit: service.Limit{Objects: 100}}

// TestProxy_TooLargeServiceAffectsNoOther: the first write and later ones contain the frontends of a too large Service
// that fit the limit, and all other Services, also after a restart.
func TestProxy_TooLargeServiceAffectsNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const others = 12
		kernel := nftmodel.NewKernel()
		large := func(addresses int) *service.Spec {
			s := workSpec(others)
			for i := range addresses {
				s.ExternalIPs[service.IPv4] = append(s.ExternalIPs[service.IPv4], netip.AddrFrom4([4]byte{198, 18, byte(i >> 8), byte(i)}))
			}
			return s
		}
		life := func(when string, addresses, served int, meanwhile func(*source.Cache)) {
			t.Helper()
			var cache *source.Cache
			_, stop := run(t, proxy.Config{
				Node: limited, GateWait: time.Hour, Domains: []proxy.Domain{memoryDomain(kernel)},
				Source: filled(&cache, func(c *source.Cache) {
					for i := range others {
						c.SetSpec(workSpec(i))
						c.SetSlice(workSlice(i, 1))
					}
					c.SetSpec(large(addresses))
					c.SetSlice(workSlice(others, 1))
					c.Prime()
				}),
			})
			time.Sleep(time.Second)
			synctest.Wait()
			if got := len(frontends(t, memoryDomain(kernel).Writer)); got != served {
				t.Errorf("%s: %d frontends after a second, want %d", when, got, served)
			}
			meanwhile(cache)
			stop()
		}
		life("first start, too large", 100, others+50, func(*source.Cache) {})
		life("small enough", 9, others+10, func(cache *source.Cache) {
			cache.SetSpec(large(5000))
			time.Sleep(time.Minute)
			if got := len(frontends(t, memoryDomain(kernel).Writer)); got != others+50 {
				t.Errorf("too large: %d frontends, want %d", got, others+50)
			}
		})
		life("restart, too large", 5000, others+50, func(cache *source.Cache) {
			cache.SetSlice(workSlice(0, 2))
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
			cache.SetSpec(large(3))
			time.Sleep(time.Second)
			if got := len(frontends(t, memoryDomain(kernel).Writer)); got != others+4 {
				t.Errorf("small again: %d frontends, want %d", got, others+4)
			}
			cache.SetSpec(large(5000))
			time.Sleep(time.Second)
			cache.RemoveSpec(large(0).Key)
			time.Sleep(time.Second)
			if got := len(frontends(t, memoryDomain(kernel).Writer)); got != others {
				t.Errorf("deleted: %d frontends, want %d", got, others)
			}
		})
	})
}

// TestProxy_TooLargeServiceGivesUpAddresses: when a Service becomes too large and gives up an external IP, a younger
// Service is served at this address, also after a restart and while the actor is restarted. The too large Service keeps
// its other addresses that fit the limit, and gets back those that it requests again. No Service is served at an address
// that does not fit.
func TestProxy_TooLargeServiceGivesUpAddresses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kernel := nftmodel.NewKernel()
		at := func(host byte) netip.Addr { return netip.AddrFrom4([4]byte{203, 0, 113, host}) }
		spec := func(i int, more int, external ...netip.Addr) *service.Spec {
			s := workSpec(i)
			s.Created = time.Unix(int64(i), 0)
			s.ExternalIPs[service.IPv4] = external
			for i := range more {
				s.ExternalIPs[service.IPv4] = append(s.ExternalIPs[service.IPv4], netip.AddrFrom4([4]byte{198, 18, byte(i >> 8), byte(i)}))
			}
			return s
		}
		var fails atomic.Bool
		life := func(changes func(cache *source.Cache), first ...*service.Spec) {
			var cache *source.Cache
			domain := memoryDomain(kernel)
			domain.Renderer = failing{domain.Renderer, &fails}
			_, stop := run(t, proxy.Config{Node: limited, Domains: []proxy.Domain{domain},
				Source: filled(&cache, func(c *source.Cache) {
					for i := range 4 {
						c.SetSlice(workSlice(i, 1))
					}
					for _, s := range first {
						c.SetSpec(s)
					}
					c.Prime()
				})})
			time.Sleep(time.Second)
			synctest.Wait()
			changes(cache)
			stop()
		}
		expect := func(when string, host byte, want int) {
			t.Helper()
			time.Sleep(time.Second)
			synctest.Wait()
			to := netip.AddrPort{}
			for _, o := range kernel.Outcomes(nftmodel.Packet{Src: netip.MustParseAddrPort("192.0.2.9:40000"),
				Dst: netip.AddrPortFrom(at(host), 80), Protocol: service.TCP, In: "eth0", Out: "veth"}) {
				to = o.To
			}
			wanted := netip.AddrPortFrom(at(host), 80)
			if want >= 0 {
				wanted = netip.AddrPortFrom(workSlice(want, 1).Endpoints[0].Addr, 8080)
			}
			if to != wanted {
				t.Errorf("%s: a client of %v reaches %v, want %v", when, at(host), to, wanted)
			}
		}
		life(func(cache *source.Cache) {
			expect("at first", 1, 0)
			cache.SetSpec(spec(0, 5000, at(2), at(3)))
			expect("nobody wants what was given up", 1, -1)
			cache.SetSpec(spec(1, 0, at(1), at(3)))
			expect("given up", 1, 1)
			expect("not given up", 2, 0)
			expect("not given up, and wanted by a younger Service", 3, 0)
			cache.SetSpec(spec(0, 5000, at(1), at(2), at(3)))
			expect("wanted again while it is too large", 1, 0)
			cache.SetSpec(spec(0, 5000, at(2), at(3)))
			expect("given up once more", 1, 1)
			last := spec(0, 5000, at(2), at(3))
			last.ExternalIPs[service.IPv4] = append(last.ExternalIPs[service.IPv4], at(1))
			cache.SetSpec(last)
			expect("wanted again as the last one", 1, -1)
			cache.SetSpec(spec(0, 5000, at(2), at(3)))
			expect("given up again", 1, 1)
		}, spec(0, 0, at(1), at(2), at(3)))
		life(func(cache *source.Cache) {
			expect("after a restart", 2, 0)
			expect("after a restart, and wanted by a younger Service", 3, 0)
			cache.SetSpec(spec(0, 5000, at(3)))
			cache.SetSpec(spec(2, 0, at(2)))
			expect("given up after a restart", 2, 2)
			cache.SetSpec(spec(0, 0, at(2), at(3)))
			expect("small again, older, and wanted again", 2, 0)
			fails.Store(true)
			cache.SetSpec(spec(0, 1, at(2), at(3)))
			synctest.Wait()
			fails.Store(false)
			cache.SetSpec(spec(0, 5000, at(3)))
			expect("given up after a panic, while it is too large", 2, 2)
			expect("not given up after a panic", 3, 0)
			cache.SetSpec(spec(0, 0, at(2), at(3)))
			expect("small again after a panic", 2, 0)
		}, spec(0, 5000, at(2), at(3)), spec(1, 0, at(1), at(3)))
	})
}

// failing is a renderer that panics while fails is set.
type failing struct {
	dataplane.Renderer
	fails *atomic.Bool
}

func (r failing) Service(ctx context.Context, view *service.View, facts *service.NodeFacts) []dataplane.Object {
	if r.fails.Load() {
		panic("asked for")
	}
	return r.Renderer.Service(ctx, view, facts)
}

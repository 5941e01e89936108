package proxy_test

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	proxy "github.com/sluice-proxy/sluice"
	"github.com/sluice-proxy/sluice/internal/nftmodel"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source"
)

// TestAServiceThatIsTooLargeAffectsNoOther: the first write does not wait for it, and what a
// former process left of it stays until it asks for less.
func TestAServiceThatIsTooLargeAffectsNoOther(t *testing.T) {
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
				ObjectsMax: 100, GateWait: time.Hour, Domains: []proxy.Domain{memoryDomain(kernel)},
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
		life("first start, too large", 100, others, func(*source.Cache) {})
		life("small enough", 9, others+10, func(cache *source.Cache) {
			cache.SetSpec(large(5000))
			time.Sleep(time.Minute)
			if got := len(frontends(t, memoryDomain(kernel).Writer)); got != others+10 {
				t.Errorf("too large: %d frontends, want the %d from before", got, others+10)
			}
		})
		life("restart, too large", 5000, others+10, func(cache *source.Cache) {
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

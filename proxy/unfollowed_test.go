// SPDX-License-Identifier: Apache-2.0

package proxy_test

import (
	"context"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/observe"
	"github.com/sluice-proxy/sluice/observe/book"
	"github.com/sluice-proxy/sluice/proxy"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source"
	"github.com/sluice-proxy/sluice/test/nftmodel"
)

// brokenRenderer is that of a release that fails for two of 20 Services.
type brokenRenderer struct {
	dataplane.Renderer
	fail func()
}

func (r brokenRenderer) Service(ctx context.Context, view *service.View, facts *service.NodeFacts) []dataplane.Object {
	for i := 0; i < 20; i += 10 {
		if view.Key == workSpec(i).Key {
			r.fail()
		}
	}
	return r.Renderer.Service(ctx, view, facts)
}

// TestProxy_ReleaseFailsForSomeServices: when actors of a new release panic, hang or are too large for some Services,
// readiness lists exactly these Services at the first sync.
func TestProxy_ReleaseFailsForSomeServices(t *testing.T) {
	for name, c := range map[string]struct {
		fail func()
		node proxy.NodeSettings
	}{
		"panic":     {func() { panic("a bug") }, proxy.NodeSettings{}},
		"hang":      {func() { time.Sleep(24 * time.Hour) }, proxy.NodeSettings{}},
		"too large": {func() {}, proxy.NodeSettings{Limit: service.Limit{Objects: 3}}}, // one frontend with an endpoint
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testBrokenRelease(t, c.fail, c.node) })
		})
	}
}

// external is the external IP of one of the two Services.
func external(i int) netip.Addr { return netip.AddrFrom4([4]byte{198, 18, 0, byte(i)}) }

func testBrokenRelease(t *testing.T, fail func(), node proxy.NodeSettings) {
	kernel := nftmodel.NewKernel()
	var cache *source.Cache
	version := byte(1)
	fill := filled(&cache, func(c *source.Cache) {
		for i := range 20 {
			spec := workSpec(i)
			if i%10 == 0 {
				spec.ExternalIPs[service.IPv4] = []netip.Addr{external(i)}
			}
			c.SetSpec(spec)
			c.SetSlice(workSlice(i, version))
		}
		c.Prime()
	})
	_, stop := run(t, proxy.Config{Domains: []proxy.Domain{memoryDomain(kernel)}, Source: fill})
	time.Sleep(time.Minute)
	stop()

	version = 2 // all endpoints were replaced meanwhile
	d := memoryDomain(kernel)
	d.Renderer = brokenRenderer{d.Renderer, fail}
	remembered := book.New(book.Config{})
	p, stop := run(t, proxy.Config{Domains: []proxy.Domain{d}, Source: fill, Node: node, MessageDeadline: 10 * time.Second, Listeners: []observe.Listener{remembered}})
	<-p.FirstSync()
	synctest.Wait()
	held := remembered.Unfollowed()
	for i := range 20 {
		followed := reaches(kernel, i, endpointOf(i, 2)) && (i%10 != 0 || leads(kernel, external(i), endpointOf(i, 2)))
		if a, isHeld := held[workSpec(i).Key]; isHeld == followed || isHeld && (a.Reason == "" || a.Since.IsZero()) {
			t.Errorf("Service %d: follows the API: %v; %+v", i, followed, a)
		}
	}
	if len(held) < 2 {
		t.Errorf("%d Services are not followed", len(held))
	}
	stop()
	time.Sleep(48 * time.Hour) // until what hangs has returned
}

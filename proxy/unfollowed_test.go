// SPDX-License-Identifier: Apache-2.0

package proxy_test

import (
	"cmp"
	"context"
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
	size int // of a service port, if it is not 0
}

func (r brokenRenderer) Size(port service.PortSize, facts *service.NodeFacts) int {
	return cmp.Or(r.size, r.Renderer.Size(port, facts))
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
		size int
	}{
		"panic":     {func() { panic("a bug") }, 0},
		"hang":      {func() { time.Sleep(24 * time.Hour) }, 0},
		"too large": {func() {}, 1_000_000},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testBrokenRelease(t, c.fail, c.size) })
		})
	}
}

func testBrokenRelease(t *testing.T, fail func(), size int) {
	kernel := nftmodel.NewKernel()
	var cache *source.Cache
	version := byte(1)
	fill := filled(&cache, func(c *source.Cache) {
		for i := range 20 {
			c.SetSpec(workSpec(i))
			c.SetSlice(workSlice(i, version))
		}
		c.Prime()
	})
	_, stop := run(t, proxy.Config{Domains: []proxy.Domain{memoryDomain(kernel)}, Source: fill})
	time.Sleep(time.Minute)
	stop()

	version = 2 // all endpoints were replaced meanwhile
	d := memoryDomain(kernel)
	d.Renderer = brokenRenderer{d.Renderer, fail, size}
	remembered := book.New(book.Config{})
	p, stop := run(t, proxy.Config{Domains: []proxy.Domain{d}, Source: fill, ObjectsMax: 100, MessageDeadline: 10 * time.Second, Listeners: []observe.Listener{remembered}})
	<-p.FirstSync()
	synctest.Wait()
	held := remembered.Unfollowed()
	for i := range 20 {
		followed := reaches(kernel, i, endpointOf(i, 2))
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

// SPDX-License-Identifier: Apache-2.0

package proxy_test

import (
	"context"
	"errors"
	"strings"
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

// watched is a renderer that calls before each Service.
type watched struct {
	dataplane.Renderer
	before func(*service.View)
}

func (w watched) Service(ctx context.Context, view *service.View, facts *service.NodeFacts) []dataplane.Object {
	w.before(view)
	return w.Renderer.Service(ctx, view, facts)
}

// TestProxy_FixDuringLastFailure: a fix that arrives during the failure that parks an actor is served within three
// seconds, like a fix that arrives later.
func TestProxy_FixDuringLastFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var cache *source.Cache
		var failures atomic.Int32
		var fixed time.Time
		domain := memoryDomain(nftmodel.NewKernel())
		domain.Renderer = watched{domain.Renderer, func(view *service.View) {
			if ports := view.Ports[service.IPv4]; len(ports) == 0 || ports[0].Port != 80 {
				return
			}
			if failures.Add(1) == 7 { // the one that parks it
				spec := workSpec(1)
				spec.Ports[0].Port = 81
				fixed = time.Now()
				cache.SetSpec(spec)
			}
			panic("port 80")
		}}
		_, stop := run(t, proxy.Config{
			Domains: []proxy.Domain{domain},
			Source: filled(&cache, func(c *source.Cache) {
				c.SetSpec(workSpec(1))
				c.SetSlice(workSlice(1, 1))
				c.Prime()
			}),
		})
		for range 400 {
			if len(frontends(t, domain.Writer)) > 0 {
				break
			}
			time.Sleep(time.Second)
		}
		if took := time.Since(fixed); failures.Load() != 7 || took > 3*time.Second {
			t.Errorf("served %v after the fix, %d failures", took, failures.Load())
		}
		stop()
	})
}

// TestProxy_HangingActorDoesNotDelayStop: a hanging actor delays the stop of the proxy by little more than a second, so
// a takeover need not wait.
func TestProxy_HangingActorDoesNotDelayStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var cache *source.Cache
		release := make(chan struct{})
		domain := memoryDomain(nftmodel.NewKernel())
		domain.Renderer = watched{domain.Renderer, func(*service.View) { <-release }}
		_, stop := run(t, proxy.Config{
			Domains: []proxy.Domain{domain},
			Source: filled(&cache, func(c *source.Cache) {
				c.SetSpec(workSpec(1))
				c.Prime()
			}),
		})
		time.Sleep(time.Second)
		began := time.Now()
		stopped := make(chan struct{})
		go func() { stop(); close(stopped) }()
		select {
		case <-stopped:
			if took := time.Since(began); took > 1500*time.Millisecond {
				t.Errorf("stopped after %v", took)
			}
		case <-time.After(24 * time.Hour):
			t.Error("not stopped after a day")
		}
		close(release)
		<-stopped
	})
}

// TestProxy_ManyHangingActorsEndProxy: the proxy ends with an error when many actors hang, so that the next process
// starts without them.
func TestProxy_ManyHangingActorsEndProxy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		domain := memoryDomain(nftmodel.NewKernel())
		domain.Renderer = watched{domain.Renderer, func(*service.View) { <-release }}
		var cache *source.Cache
		p, err := proxy.New(proxy.Config{
			Node: proxy.NodeSettings{Name: "n1"}, Domains: []proxy.Domain{domain},
			Source: filled(&cache, func(c *source.Cache) {
				for i := range 20 {
					c.SetSpec(workSpec(i))
				}
				c.Prime()
			}),
		})
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- p.Run(t.Context()) }()
		select {
		case err = <-ended:
		case <-time.After(time.Hour):
			err = errors.New("still running after an hour")
		}
		if err == nil || !strings.Contains(err.Error(), "20 goroutines hang, and no more than 8 may") {
			t.Errorf("%v", err)
		}
		close(release)
	})
}

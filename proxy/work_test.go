// SPDX-License-Identifier: Apache-2.0

package proxy_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-proxy/sluice/actors"
	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/dataplane"
	nftrender "github.com/sluice-proxy/sluice/dataplane/nftables/render"
	"github.com/sluice-proxy/sluice/observe"
	"github.com/sluice-proxy/sluice/proxy"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source"
	"github.com/sluice-proxy/sluice/supervisor"
	"github.com/sluice-proxy/sluice/test/nftmodel"
)

// work is the cost of changes: Services and objects rendered, and what was written.
type work struct {
	Services, Objects int
	Written           dataplane.Written
}

// meter counts the work of a running proxy. It is the renderer (around the real
// one) and a listener.
type meter struct {
	dataplane.Renderer
	mu   sync.Mutex
	done work
}

func (m *meter) Service(ctx context.Context, view *service.View, facts *service.NodeFacts) []dataplane.Object {
	objects := m.Renderer.Service(ctx, view, facts)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.done.Services++
	m.done.Objects += len(objects)
	return objects
}

func (m *meter) Supervisor(supervisor.Event[service.Key]) {}
func (m *meter) Actors(actors.Event)                      {}

func (*meter) Source(source.Shadowed) {}

func (m *meter) Aggregator(event aggregator.Event) {
	if e, ok := event.(aggregator.BatchWritten); ok {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.done.Written = m.done.Written.Add(e.Receipt.Written)
	}
}

// take returns the work since the last call.
func (m *meter) take() work {
	m.mu.Lock()
	defer m.mu.Unlock()
	done := m.done
	m.done = work{}
	return done
}

// metered is a domain in memory and the meter of it.
func metered() (*meter, proxy.Domain) {
	domain := memoryDomain(nftmodel.NewKernel())
	m := &meter{Renderer: domain.Renderer}
	domain.Renderer = m
	return m, domain
}

// costs runs the whole proxy over a kernel in memory with the given number of other
// Services. It returns the work of replacing an endpoint, of adding one, of a resync,
// and of a new Service.
func costs(t *testing.T, others int) (replaced, scaled, resync, added work) {
	synctest.Test(t, func(t *testing.T) {
		m, domain := metered()
		var cache *source.Cache
		_, stop := run(t, proxy.Config{
			Listeners: []observe.Listener{m}, Domains: []proxy.Domain{domain},
			Source: filled(&cache, func(c *source.Cache) {
				for i := range others {
					c.SetSpec(workSpec(i))
					c.SetSlice(workSlice(i, 1, 2, 3))
				}
				c.Prime()
			}),
		})
		settled := func() work {
			time.Sleep(5 * time.Second) // past every pause
			synctest.Wait()
			return m.take()
		}
		if first := settled(); first.Services != others {
			t.Fatalf("%d Services rendered at the start, want %d", first.Services, others)
		}
		cache.SetSlice(workSlice(7, 1, 2, 4))
		replaced = settled()
		cache.SetSlice(workSlice(7, 1, 2, 4, 5))
		scaled = settled()
		for i := range others {
			cache.SetSpec(workSpec(i))
		}
		cache.SetSlice(workSlice(7, 1, 2, 4, 5))
		resync = settled()
		cache.SetSlice(workSlice(others, 1)) // without a spec, the slice is not posted: this is one change
		cache.SetSpec(workSpec(others))
		added = settled()
		stop()
	})
	return replaced, scaled, resync, added
}

// TestProxy_WorkPerChangeIndependentOfSize counts the work for one change; it is the same among 100 and among 5,000
// other Services.
func TestProxy_WorkPerChangeIndependentOfSize(t *testing.T) {
	fewReplaced, fewScaled, fewResync, fewAdded := costs(t, 100)
	manyReplaced, manyScaled, manyResync, manyAdded := costs(t, 5000)
	for _, c := range []struct {
		what      string
		few, many work
	}{
		{"endpoint replaced", fewReplaced, manyReplaced},
		{"endpoint added", fewScaled, manyScaled},
		{"resync", fewResync, manyResync},
		{"Service added", fewAdded, manyAdded},
	} {
		t.Logf("%s: %+v", c.what, c.many)
		if c.few != c.many {
			t.Errorf("%s: %+v among 100, %+v among 5,000", c.what, c.few, c.many)
		}
	}
	if manyReplaced.Services != 1 || manyReplaced.Written.Calls != 1 || manyScaled.Written.Calls != 1 {
		t.Errorf("endpoint replaced: %+v, added: %+v; want one rendering and one write", manyReplaced, manyScaled)
	}
	if manyResync != (work{}) {
		t.Errorf("a resync cost %+v, want nothing", manyResync)
	}
}

// frontends returns the addresses and ports that a kernel serves.
func frontends(t *testing.T, writer dataplane.Writer) (found []dataplane.Object) {
	t.Helper()
	objects, err := writer.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		if o.ID.Container == "@"+nftrender.SetName("frontends") {
			found = append(found, o)
		}
	}
	return found
}

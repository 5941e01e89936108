// SPDX-License-Identifier: Apache-2.0

package proxy_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-proxy/sluice/actors"
	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/observe"
	"github.com/sluice-proxy/sluice/proxy"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source"
	"github.com/sluice-proxy/sluice/supervisor"
	"github.com/sluice-proxy/sluice/test/nftmodel"
)

// triggers collects the triggers of what was applied.
type triggers struct {
	mu  sync.Mutex
	all map[service.Key][]time.Time
}

func (t *triggers) Supervisor(supervisor.Event[service.Key]) {}
func (t *triggers) Actors(actors.Event)                      {}

func (*triggers) Source(source.Shadowed) {}

func (t *triggers) Aggregator(event aggregator.Event) {
	if e, ok := event.(aggregator.Applied); ok && !e.Trigger.IsZero() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.all[e.Key] = append(t.all[e.Key], e.Trigger)
	}
}

// TestProxy_EachTriggerMeasured: a slice with a trigger time is measured exactly once, in any order of the Service and
// its slice, and however close together they are delivered.
func TestProxy_EachTriggerMeasured(t *testing.T) {
	const pause = time.Second
	for name, deliver := range map[string]func(c *source.Cache, spec *service.Spec, slice *service.Slice){
		"the Service, then the slice": func(c *source.Cache, spec *service.Spec, slice *service.Slice) {
			c.SetSpec(spec)
			time.Sleep(pause)
			c.SetSlice(slice)
		},
		"the Service, and its slice at once": func(c *source.Cache, spec *service.Spec, slice *service.Slice) {
			c.SetSpec(spec)
			c.SetSlice(slice)
		},
		"the slice, then the Service": func(c *source.Cache, spec *service.Spec, slice *service.Slice) {
			c.SetSlice(slice)
			time.Sleep(pause)
			c.SetSpec(spec)
		},
		"the slice, and its Service at once": func(c *source.Cache, spec *service.Spec, slice *service.Slice) {
			c.SetSlice(slice)
			c.SetSpec(spec)
		},
		"the Service goes and comes, then the slice": func(c *source.Cache, spec *service.Spec, slice *service.Slice) {
			c.SetSpec(spec)
			c.RemoveSpec(spec.Key)
			c.SetSpec(spec)
			c.SetSlice(slice)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				seen := &triggers{all: map[service.Key][]time.Time{}}
				var cache *source.Cache
				_, stop := run(t, proxy.Config{
					Listeners: []observe.Listener{seen}, Domains: []proxy.Domain{memoryDomain(nftmodel.NewKernel())},
					Source: filled(&cache, (*source.Cache).Prime),
				})
				time.Sleep(pause)
				synctest.Wait()
				slice := workSlice(1, 1)
				slice.Trigger = time.Now()
				deliver(cache, workSpec(1), slice)
				time.Sleep(pause)
				synctest.Wait()
				if got := seen.all[workSpec(1).Key]; len(got) != 1 || !got[0].Equal(slice.Trigger) {
					t.Errorf("triggers %v were measured, want %v once", got, slice.Trigger)
				}
				stop()
			})
		})
	}
}

// SPDX-License-Identifier: Apache-2.0

package proxy_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
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
)

// waitMeter keeps how long changes took from their receipt until they were applied.
type waitMeter struct {
	mu   sync.Mutex
	took []time.Duration
}

func (w *waitMeter) Supervisor(supervisor.Event[service.Key]) {}
func (w *waitMeter) Actors(actors.Event)                      {}

func (*waitMeter) Source(source.Shadowed) {}

func (w *waitMeter) Aggregator(event aggregator.Event) {
	if e, ok := event.(aggregator.Applied); ok && !e.Received.IsZero() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.took = append(w.took, e.At.Sub(e.Received))
	}
}

// churned replaces endpoints of a few of 2,000 Services, one by one, while a number of askers
// put questions without a pause of their own. It returns the work done, how long each change took
// on the clock of the test (which stands still while anything computes), and the answers.
func churned(t *testing.T, askers int) (done work, took []time.Duration, answers int64) {
	const services, changes, pause = 2_000, 100, time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		m, domain := metered()
		waits := &waitMeter{}
		var cache *source.Cache
		p, stop := run(t, proxy.Config{
			Listeners: []observe.Listener{m, waits}, Domains: []proxy.Domain{domain},
			Source: filled(&cache, func(c *source.Cache) {
				for i := range services {
					c.SetSpec(workSpec(i))
					c.SetSlice(workSlice(i, 1, 2))
				}
				c.Prime()
			}),
		})
		time.Sleep(10 * time.Second)
		synctest.Wait()
		m.take()
		ctx, cancel := context.WithCancel(context.Background())
		var asked atomic.Int64
		var asking sync.WaitGroup
		for n := range askers {
			asking.Go(func() {
				for i := n; ctx.Err() == nil; i++ {
					key := workSpec(i % services).Key
					account, err := p.Account(ctx, domain.Name, key, 500)
					if err == nil && (!account.Known || len(account.Objects) == 0) {
						t.Errorf("%v: %+v", key, account)
					}
					if _, err := p.Pending(ctx, domain.Name); err == nil {
						asked.Add(2)
					}
					time.Sleep(pause / 4)
				}
			})
		}
		for i := range changes {
			cache.SetSlice(workSlice(i%50, 1, byte(3+i/50)))
			time.Sleep(pause)
		}
		time.Sleep(10 * time.Second / 100)
		synctest.Wait()
		cancel()
		asking.Wait()
		done, took, answers = m.take(), waits.took, asked.Load()
		stop()
	})
	return done, took, answers
}

// TestProxy_QueriesDoNotDelayChanges: with 2,000 Services and four clients that query constantly, changes cost the same
// work and take no longer than without queries.
func TestProxy_QueriesDoNotDelayChanges(t *testing.T) {
	quiet, quietTook, _ := churned(t, 0)
	asked, askedTook, answers := churned(t, 4)
	t.Logf("%d answers during %d changes; the slowest change took %v, without questions %v",
		answers, len(askedTook), slices.Max(askedTook), slices.Max(quietTook))
	if answers < 1000 {
		t.Errorf("only %d answers: this test proves nothing", answers)
	}
	if asked != quiet || len(askedTook) != len(quietTook) {
		t.Errorf("questions change the work: %+v for %d changes, want %+v for %d", asked, len(askedTook), quiet, len(quietTook))
	}
	if slices.Max(askedTook) > slices.Max(quietTook) {
		t.Errorf("a change took %v with questions, and %v without", slices.Max(askedTook), slices.Max(quietTook))
	}
}

// TestProxy_QueriesAfterStop: queries to a stopped proxy and to an unknown domain return an error.
func TestProxy_QueriesAfterStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, domain := metered()
		var cache *source.Cache
		p, stop := run(t, proxy.Config{Domains: []proxy.Domain{domain}, Source: filled(&cache, func(c *source.Cache) {
			c.SetSpec(workSpec(1))
			c.Prime()
		})})
		synctest.Wait()
		if p.Synced().IsZero() || len(p.Keys()) != 1 || p.Snapshot(workSpec(1).Key).Spec == nil {
			t.Error("what the source has said is not answered")
		}
		if _, err := p.Account(context.Background(), "nowhere", workSpec(1).Key, 1); err == nil {
			t.Error("an unknown domain answers")
		}
		stop()
		if _, err := p.Account(context.Background(), domain.Name, workSpec(1).Key, 1); err == nil {
			t.Error("a domain answers that has stopped")
		}
		if _, err := p.Pending(context.Background(), domain.Name); err == nil {
			t.Error("a domain answers that has stopped")
		}
	})
}

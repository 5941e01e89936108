package proxy_test

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	proxy "github.com/sluice-proxy/sluice"
	"github.com/sluice-proxy/sluice/actors"
	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/nftables"
	"github.com/sluice-proxy/sluice/observe"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source"
	"github.com/sluice-proxy/sluice/supervisor"
	"github.com/sluice-proxy/sluice/test/nftmodel"
)

// work is what changes have cost: Services and objects rendered, and what was
// sent to the kernel.
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

func (m *meter) Service(view *service.View, facts *service.NodeFacts) []dataplane.Object {
	objects := m.Renderer.Service(view, facts)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.done.Services++
	m.done.Objects += len(objects)
	return objects
}

func (m *meter) Supervisor(supervisor.Event) {}
func (m *meter) Actors(actors.Event)         {}
func (m *meter) Aggregator(event aggregator.Event) {
	if e, ok := event.(aggregator.BatchWritten); ok {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.done.Written = m.done.Written.Add(e.Receipt.Written)
	}
}

// take gives what was done since the last call.
func (m *meter) take() work {
	m.mu.Lock()
	defer m.mu.Unlock()
	done := m.done
	m.done = work{}
	return done
}

func workSpec(i int) *service.Spec {
	return &service.Spec{
		Key:        service.Key{Namespace: "ns", Name: fmt.Sprintf("s%05d", i)},
		ClusterIPs: service.PerFamily[netip.Addr]{service.IPv4: netip.AddrFrom4([4]byte{172, 30, byte(i >> 8), byte(i)})},
		Ports:      []service.Port{{Name: "http", Port: 80}},
	}
}

func workSlice(i int, hosts ...byte) *service.Slice {
	key := workSpec(i).Key
	s := &service.Slice{Service: key, Name: key.Name, Ports: []service.SlicePort{{Name: "http", Port: 8080}}}
	for _, host := range hosts {
		s.Endpoints = append(s.Endpoints, service.SliceEndpoint{
			Addr: netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), host}), Ready: true, Serving: true,
		})
	}
	return s
}

// costs runs the whole proxy over an in-memory kernel with the given number of
// other Services, and gives the work of replacing an endpoint, of adding one, of
// a resync, and of a new Service.
func costs(t *testing.T, others int) (replaced, scaled, resync, added work) {
	synctest.Test(t, func(t *testing.T) {
		m := &meter{Renderer: nftables.NewRenderer(service.IPv4, nftables.Options{MasqueradeBit: 14})}
		var cache *source.Cache
		p, err := proxy.New(proxy.Config{
			Node: proxy.NodeSettings{Name: "n1"}, Listeners: []observe.Listener{m},
			Domains: []proxy.Domain{{
				Name: "memory/IPv4", Renderer: m,
				Writer: nftmodel.NewKernel().Writer(service.IPv4),
				Pace:   aggregator.Pace{Audit: 24 * time.Hour},
			}},
			Source: func(ctx context.Context, c *source.Cache) error {
				cache = c
				for i := range others {
					c.SetSpec(workSpec(i))
					c.SetSlice(workSlice(i, 1, 2, 3))
				}
				c.Prime()
				<-ctx.Done()
				return nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- p.Run(ctx) }()
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
		cache.SetSpec(workSpec(others))
		cache.SetSlice(workSlice(others, 1))
		added = settled()
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	})
	return replaced, scaled, resync, added
}

// The work for one change is counted, not timed: it is the same among 100 and
// among 5,000 other Services.
func TestWorkForOneChangeDoesNotGrowWithTheNumberOfServices(t *testing.T) {
	fewReplaced, fewScaled, fewResync, fewAdded := costs(t, 100)
	manyReplaced, manyScaled, manyResync, manyAdded := costs(t, 5000)
	t.Logf("endpoint replaced: %+v", manyReplaced)
	t.Logf("endpoint added:    %+v", manyScaled)
	t.Logf("Service added:     %+v among 100, %+v among 5,000", fewAdded, manyAdded)
	// An endpoint more or less is one slot, and one or two that change their endpoint.
	const slotsMax = 3
	if fewReplaced != manyReplaced || manyReplaced.Services != 1 || manyReplaced.Written.Objects > slotsMax {
		t.Errorf("endpoint replaced: %+v among 100, %+v among 5,000", fewReplaced, manyReplaced)
	}
	if fewScaled != manyScaled || manyScaled.Written.Objects > slotsMax {
		t.Errorf("endpoint added: %+v among 100, %+v among 5,000", fewScaled, manyScaled)
	}
	if fewResync != (work{}) || manyResync != (work{}) {
		t.Errorf("a resync cost %+v and %+v, want nothing", fewResync, manyResync)
	}
	if fewAdded != manyAdded || manyAdded.Written.Objects > 4 {
		t.Errorf("Service added: %+v among 100, %+v among 5,000", fewAdded, manyAdded)
	}
}

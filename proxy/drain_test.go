package proxy_test

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-proxy/sluice/actors"
	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/proxy"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source"
)

// weights is a kernel of virtual servers, each a list of "address=weight", with its
// renderer, writer and drainer. It outlives the proxies that write it.
type weights struct {
	mu      sync.Mutex
	servers map[dataplane.ID]*dataplane.Object
	busy    map[string]bool
}

func (*weights) Node(*service.NodeFacts) []dataplane.Object { return nil }

func (*weights) Size(service.PortSize, *service.NodeFacts) int { return 1 }

func (*weights) Naming() dataplane.Naming { return nil }

func (*weights) Service(ctx context.Context, view *service.View, _ *service.NodeFacts) []dataplane.Object {
	var all []dataplane.Object
	for _, p := range view.Ports[service.IPv4] {
		var lines []string
		for _, e := range p.Cluster {
			lines = append(lines, e.String()+"=1")
		}
		for _, e := range p.Draining {
			lines = append(lines, e.String()+"=0")
		}
		all = append(all, dataplane.Object{ID: serverOf(&p), Kind: dataplane.Element, Body: strings.Join(lines, " ")})
	}
	return all
}

func serverOf(p *service.PortView) dataplane.ID {
	return dataplane.ID{Container: "server", Name: fmt.Sprintf("%v:%d", p.ClusterIP, p.Port)}
}

func (w *weights) Write(_ context.Context, batch *dataplane.Batch) dataplane.Receipt {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range batch.Changes {
		if c.After == nil {
			delete(w.servers, c.ID)
		} else {
			w.servers[c.ID] = c.After
		}
	}
	return dataplane.Receipt{Written: dataplane.Written{Objects: len(batch.Changes)}}
}

func (w *weights) Read(context.Context) (all []dataplane.Object, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, o := range w.servers {
		all = append(all, *o)
	}
	return all, nil
}

func (w *weights) Busy(_ context.Context, _ *service.View, _ *service.PortView, e service.Endpoint) (bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.busy[e.String()], nil
}

func (w *weights) Held(_ context.Context, _ *service.View, p *service.PortView) (held []service.Endpoint, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	server := w.servers[serverOf(p)]
	if server == nil {
		return nil, nil
	}
	for line := range strings.FieldsSeq(server.Body) {
		address, _, _ := strings.Cut(line, "=")
		e := service.Endpoint{AddrPort: netip.MustParseAddrPort(address)}
		if !slices.Contains(p.Cluster, e) {
			held = append(held, e)
		}
	}
	return held, nil
}

// holds returns the real servers of the only virtual server.
func (w *weights) holds() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, o := range w.servers {
		return o.Body
	}
	return "no server"
}

// connect says which of the endpoints 10.0.1.x:8080 has connections.
func (w *weights) connect(hosts ...int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.busy = map[string]bool{}
	for _, host := range hosts {
		w.busy[fmt.Sprintf("10.0.1.%d:8080", host)] = true
	}
}

// life is one proxy over a kernel.
type life struct {
	cache *source.Cache
	stop  func()
}

// begin starts a proxy and lets it settle. It writes once may, if set, is closed.
func begin(t *testing.T, w *weights, may chan struct{},
	intercept func(context.Context, service.Key, actors.Message), hosts ...byte) *life {
	t.Helper()
	l := &life{}
	_, l.stop = run(t, proxy.Config{
		Intercept: intercept, MayWrite: may,
		Domains: []proxy.Domain{{
			Name: "weights/IPv4", Family: service.IPv4, Renderer: w, Writer: w,
			Pace: aggregator.Pace{Audit: time.Minute}, Drain: w, DrainDeadline: 10 * time.Minute,
		}},
		Source: filled(&l.cache, func(c *source.Cache) {
			c.SetSpec(workSpec(1))
			c.SetSlice(workSlice(1, hosts...))
			c.Prime()
		}),
	})
	l.settle()
	return l
}

// settle waits until all writes have ended, but not until a question is due.
func (*life) settle() { time.Sleep(500 * time.Millisecond); synctest.Wait() }

func expectHeld(t *testing.T, w *weights, when, want string) {
	t.Helper()
	want = strings.NewReplacer("a", "10.0.1.1:8080", "b", "10.0.1.2:8080", "c", "10.0.1.3:8080").Replace(want)
	if got := w.holds(); got != want {
		t.Errorf("%s: the kernel has %q, want %q", when, got, want)
	}
}

// TestConnectionsOutliveAHandOver: an endpoint that drains when a proxy stops keeps its
// connections, and so does one that leaves before the successor starts.
func TestConnectionsOutliveAHandOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &weights{servers: map[dataplane.ID]*dataplane.Object{}}
		first := begin(t, w, nil, nil, 1, 2, 3)
		expectHeld(t, w, "start", "a=1 b=1 c=1")
		w.connect(2, 3)
		first.cache.SetSlice(workSlice(1, 1, 2))
		first.settle()
		expectHeld(t, w, "c has left", "a=1 b=1 c=0")
		time.Sleep(5 * time.Minute)
		expectHeld(t, w, "c is busy", "a=1 b=1 c=0")
		first.stop()

		second := begin(t, w, nil, nil, 1)
		expectHeld(t, w, "b has left meanwhile", "a=1 b=0 c=0")
		time.Sleep(9 * time.Minute)
		expectHeld(t, w, "the deadline began anew", "a=1 b=0 c=0")
		w.connect(3)
		time.Sleep(20 * time.Second)
		expectHeld(t, w, "b is idle", "a=1 c=0")
		second.cache.SetSlice(workSlice(1, 1, 2))
		second.settle()
		expectHeld(t, w, "b is back", "a=1 b=1 c=0")
		time.Sleep(time.Minute)
		expectHeld(t, w, "the deadline has passed", "a=1 b=1")
		second.cache.RemoveSpec(workSpec(1).Key)
		second.settle()
		expectHeld(t, w, "the Service is gone", "no server")
		second.stop()
	})
}

// TestConnectionsOutliveAnOverlap: a proxy that waits for another one asks what drains
// after that has ended, because until then more endpoints start to drain.
func TestConnectionsOutliveAnOverlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &weights{servers: map[dataplane.ID]*dataplane.Object{}}
		first := begin(t, w, nil, nil, 1)
		may := make(chan struct{})
		second := begin(t, w, may, nil, 1)
		first.cache.SetSlice(workSlice(1, 1, 2))
		first.settle()
		w.connect(2)
		first.cache.SetSlice(workSlice(1, 1))
		first.settle()
		expectHeld(t, w, "b has come and left, which the second has not seen", "a=1 b=0")
		first.stop()
		close(may)
		second.settle()
		expectHeld(t, w, "the second has taken over", "a=1 b=0")
		w.connect()
		time.Sleep(20 * time.Second)
		expectHeld(t, w, "b is idle", "a=1")
		second.stop()
	})
}

// TestConnectionsOutliveAnActor: an actor that fails at the message about an endpoint
// that leaves.
func TestConnectionsOutliveAnActor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &weights{servers: map[dataplane.ID]*dataplane.Object{}}
		deaths := 0
		lives := begin(t, w, nil, func(_ context.Context, _ service.Key, m actors.Message) {
			if _, ok := m.(actors.SliceChanged); ok {
				deaths++
				panic("asked for")
			}
		}, 1, 2, 3)
		w.connect(2, 3)
		lives.cache.SetSlice(workSlice(1, 1, 2))
		lives.settle()
		expectHeld(t, w, "c has left", "a=1 b=1 c=0")
		lives.cache.SetSlice(workSlice(1, 1))
		lives.settle()
		expectHeld(t, w, "b has left, too", "a=1 b=0 c=0")
		if deaths != 2 {
			t.Errorf("%d deaths, want one per message", deaths)
		}
		w.connect()
		time.Sleep(20 * time.Second)
		expectHeld(t, w, "both are idle", "a=1")
		lives.stop()
	})
}

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

	proxy "github.com/sluice-proxy/sluice"
	"github.com/sluice-proxy/sluice/actors"
	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/dataplane"
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

func (*weights) Naming() dataplane.Naming { return nil }

func (*weights) Service(view *service.View, _ *service.NodeFacts) []dataplane.Object {
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

// holds gives the real servers of the only virtual server.
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

// tenancy is one proxy's time over a kernel.
type tenancy struct {
	cache  *source.Cache
	cancel context.CancelFunc
	done   chan error
}

func moveIn(t *testing.T, w *weights, intercept func(context.Context, service.Key, actors.Message), hosts ...byte) *tenancy {
	t.Helper()
	return moveInAfter(t, w, nil, intercept, hosts...)
}

// moveInAfter is moveIn for a proxy that waits until it may write.
func moveInAfter(t *testing.T, w *weights, may chan struct{}, intercept func(context.Context, service.Key, actors.Message), hosts ...byte) *tenancy {
	t.Helper()
	lives := &tenancy{done: make(chan error, 1)}
	p, err := proxy.New(proxy.Config{
		Node: proxy.NodeSettings{Name: "n1"}, Intercept: intercept, MayWrite: may,
		Domains: []proxy.Domain{{
			Name: "weights/IPv4", Family: service.IPv4, Renderer: w, Writer: w, Pace: aggregator.Pace{Audit: time.Minute},
			Drain: w, DrainDeadline: 10 * time.Minute,
		}},
		Source: func(ctx context.Context, c *source.Cache) error {
			lives.cache = c
			c.SetSpec(workSpec(1))
			c.SetSlice(workSlice(1, hosts...))
			c.Prime()
			<-ctx.Done()
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	var ctx context.Context
	ctx, lives.cancel = context.WithCancel(t.Context())
	go func() { lives.done <- p.Run(ctx) }()
	lives.settle()
	return lives
}

// settle lets writes come to their end, well before anything is asked about.
func (*tenancy) settle() { time.Sleep(500 * time.Millisecond); synctest.Wait() }

func (l *tenancy) moveOut(t *testing.T) {
	t.Helper()
	l.cancel()
	if err := <-l.done; err != nil {
		t.Fatal(err)
	}
}

func expectHeld(t *testing.T, w *weights, when, want string) {
	t.Helper()
	want = strings.NewReplacer("a", "10.0.1.1:8080", "b", "10.0.1.2:8080", "c", "10.0.1.3:8080").Replace(want)
	if got := w.holds(); got != want {
		t.Errorf("%s: the kernel has %q, want %q", when, got, want)
	}
}

// TestConnectionsOutliveAHandOver: those that drain when a proxy stops, and those of
// an endpoint that leaves before its successor is there. Weight 0 is never forgotten
// either.
func TestConnectionsOutliveAHandOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &weights{servers: map[dataplane.ID]*dataplane.Object{}}
		first := moveIn(t, w, nil, 1, 2, 3)
		expectHeld(t, w, "start", "a=1 b=1 c=1")
		w.connect(2, 3)
		first.cache.SetSlice(workSlice(1, 1, 2))
		first.settle()
		expectHeld(t, w, "c has left", "a=1 b=1 c=0")
		time.Sleep(5 * time.Minute)
		expectHeld(t, w, "c is busy", "a=1 b=1 c=0")
		first.moveOut(t)

		second := moveIn(t, w, nil, 1)
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
		second.moveOut(t)
	})
}

// TestConnectionsOutliveAnOverlap: a proxy that waits for another asks what drains once
// that has ended, and not while it lets more endpoints drain.
func TestConnectionsOutliveAnOverlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &weights{servers: map[dataplane.ID]*dataplane.Object{}}
		first := moveIn(t, w, nil, 1)
		may := make(chan struct{})
		second := moveInAfter(t, w, may, nil, 1)
		first.cache.SetSlice(workSlice(1, 1, 2))
		first.settle()
		w.connect(2)
		first.cache.SetSlice(workSlice(1, 1))
		first.settle()
		expectHeld(t, w, "b has come and left, which the second has not seen", "a=1 b=0")
		first.moveOut(t)
		close(may)
		second.settle()
		expectHeld(t, w, "the second has taken over", "a=1 b=0")
		w.connect()
		time.Sleep(20 * time.Second)
		expectHeld(t, w, "b is idle", "a=1")
		second.moveOut(t)
	})
}

// TestConnectionsOutliveAnActor: one that dies of the message that would have told
// it what has left.
func TestConnectionsOutliveAnActor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &weights{servers: map[dataplane.ID]*dataplane.Object{}}
		deaths := 0
		lives := moveIn(t, w, func(_ context.Context, _ service.Key, m actors.Message) {
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
		lives.moveOut(t)
	})
}

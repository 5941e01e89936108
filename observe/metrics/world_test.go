// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-proxy/sluice/actors"
	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/dataplane"
	iptrender "github.com/sluice-proxy/sluice/dataplane/iptables/render"
	"github.com/sluice-proxy/sluice/dataplane/traffic"
	"github.com/sluice-proxy/sluice/observe"
	"github.com/sluice-proxy/sluice/observe/book"
	"github.com/sluice-proxy/sluice/proxy"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source"
	"github.com/sluice-proxy/sluice/supervisor"
)

var _ observe.Listener = (*Metrics)(nil)

// watched is a Metrics, and the book that it reads. Both receive all events.
type watched struct{ *Metrics }

func (w watched) book() *book.Book { return w.config.Book }

func (w watched) Supervisor(e supervisor.Event[service.Key]) {
	w.book().Supervisor(e)
	w.Metrics.Supervisor(e)
}

func (w watched) Aggregator(e aggregator.Event) {
	w.book().Aggregator(e)
	w.Metrics.Aggregator(e)
}

func (w watched) Actors(e actors.Event) {
	w.book().Actors(e)
	w.Metrics.Actors(e)
}

func (w watched) Source(e source.Shadowed) {
	w.book().Source(e)
	w.Metrics.Source(e)
}

func (w watched) Programmed(ctx context.Context, family service.Family, view service.View) {
	w.book().Programmed(ctx, family, view)
}

// world is a whole proxy over in-memory kernels of both families, watched by a
// Metrics. It lives in a testing/synctest bubble, so that time is exact.
type world struct {
	watched
	t       *testing.T
	cache   *source.Cache
	kernels service.PerFamily[*memoryKernel]
	stop    func()

	mu      sync.Mutex
	broken  map[string]bool          // names of Services whose actors panic
	hanging map[string]chan struct{} // and of those whose actors hang, once
}

const (
	domain4 = "iptables/IPv4"
	domain6 = "iptables/IPv6"
)

// inWorld runs a test in a new world.
func inWorld(t *testing.T, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, broken: map[string]bool{}, hanging: map[string]chan struct{}{}}
		for _, family := range service.Families {
			w.kernels[family] = newMemoryKernel()
		}
		w.start()
		test(w)
		w.stop()
	})
}

// start runs a new process over the kernels as they are.
func (w *world) start() {
	config := proxy.Config{Node: proxy.NodeSettings{Name: "n1"}, Intercept: w.intercept}
	var p *proxy.Proxy
	remembered := book.Config{Status: func() []aggregator.Status { return p.Status() }}
	for _, family := range service.Families {
		name := "iptables/" + family.String()
		remembered.Domains = append(remembered.Domains, book.Domain{Name: name, Family: family})
		config.Domains = append(config.Domains, proxy.Domain{
			Name: name, Family: family,
			Renderer: breakable{iptrender.NewRenderer(family, iptrender.Options{MasqueradeBit: 14}), w},
			Layout:   iptrender.NewLayout(family),
			Writer:   w.kernels[family].writer(),
			Pace:     aggregator.Pace{Audit: time.Minute},
		})
	}
	m, err := New(Config{Mode: modeIPTables, Refusals: refusals[modeIPTables], Book: book.New(remembered),
		Events: func() source.Events { return p.SourceEvents() }})
	if err != nil {
		w.t.Fatal(err)
	}
	w.Metrics = m
	config.Listeners, config.ApplyObservers = []observe.Listener{w.watched}, []proxy.ApplyObserver{{Programmed: w.watched.Programmed}}
	feed := make(chan *source.Cache, 1)
	config.Source = func(ctx context.Context, cache *source.Cache) error {
		feed <- cache
		<-ctx.Done()
		return nil
	}
	p, err = proxy.New(config)
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	w.cache = <-feed
	w.stop = func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Error(err)
		}
	}
}

// intercept makes actors hang.
func (w *world) intercept(_ context.Context, key service.Key, _ actors.Message) {
	w.mu.Lock()
	hang := w.hanging[key.Name]
	delete(w.hanging, key.Name)
	w.mu.Unlock()
	if hang != nil {
		<-hang
	}
}

// breakable is a renderer that panics over broken Services.
type breakable struct {
	dataplane.Renderer
	w *world
}

func (b breakable) Service(ctx context.Context, view *service.View, facts *service.NodeFacts) []dataplane.Object {
	b.w.mu.Lock()
	broken := b.w.broken[view.Key.Name]
	b.w.mu.Unlock()
	if broken {
		panic("this Service is broken")
	}
	return b.Renderer.Service(ctx, view, facts)
}

// settle waits for everything that is due.
func (w *world) settle() {
	time.Sleep(5 * time.Second)
	synctest.Wait()
}

// prime starts the proxy with what the source has.
func (w *world) prime() {
	w.cache.Prime()
	w.settle()
}

// reject makes both kernels reject what contains a text; an empty text ends it.
func (w *world) reject(text string) {
	for _, kernel := range w.kernels {
		kernel.set(text, nil)
	}
}

// rules counts the rules of ours in one table, without the jumps to them.
func (w *world) rules(family service.Family, table iptrender.Table) float64 {
	return w.kernels[family].rules(table)
}

// scrape reads this world's metrics.
func (w *world) scrape() samples { return scraped(w.t, w.Metrics) }

// number n of the Services of a test.
func serviceKey(n int) service.Key {
	return service.Key{Namespace: fmt.Sprintf("ns%d", n%3), Name: fmt.Sprintf("s%d", n)}
}

func spec(n int) *service.Spec {
	return &service.Spec{
		Key: serviceKey(n),
		ClusterIPs: service.PerFamily[netip.Addr]{
			netip.AddrFrom4([4]byte{172, 30, byte(n >> 8), byte(n)}),
			netip.MustParseAddr(fmt.Sprintf("fd00:30::%x", n)),
		},
		Ports: []service.Port{{Name: "http", Port: 80}},
	}
}

// slice4 holds IPv4 endpoints, the first local of them on this node.
func slice4(n, local int, hosts ...byte) *service.Slice {
	key := serviceKey(n)
	s := &service.Slice{Service: key, Name: key.Name + "-4", Ports: []service.SlicePort{{Name: "http", Port: 8080}}}
	for i, host := range hosts {
		node := "n2"
		if i < local {
			node = "n1"
		}
		s.Endpoints = append(s.Endpoints, service.SliceEndpoint{
			Addr: netip.AddrFrom4([4]byte{10, byte(n >> 8), byte(n), host}), Location: &service.Location{NodeName: node}, Ready: true, Serving: true,
		})
	}
	return s
}

// in names a sample of one family.
func in(family, name string, labels ...string) string {
	return name + "{" + strings.Join(append([]string{`ip_family="` + family + `"`}, labels...), ",") + "}"
}

// of names a sample of one domain.
func of(domain, name string, labels ...string) string {
	return name + "{" + strings.Join(append([]string{`domain="` + domain + `"`}, labels...), ",") + "}"
}

// modeUserspace is a mode that kube-proxy does not have.
const modeUserspace = "userspace"

// refusals are the reasons that modes count.
var refusals = map[string][]traffic.Reason{
	modeNFTables:  {traffic.NoEndpoints, traffic.SourceRange},
	modeIPTables:  {traffic.NoEndpoints, traffic.SourceRange},
	modeUserspace: {traffic.NoEndpoints, traffic.Limit, traffic.Unreachable},
}

// inMode changes the mode.
func (w *world) inMode(mode string) { w.config.Mode, w.config.Refusals = mode, refusals[mode] }

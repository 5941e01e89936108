package sim

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/sluice-proxy/sluice/actors"
	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// puppets makes actors panic and hang. Actors call it.
type puppets struct {
	mu     sync.Mutex
	panics map[service.Key]int
	hangs  map[service.Key]int
	// hanging counts those that hang now, given up or not.
	hanging map[service.Key]int
	// free is closed to let those that hang go on.
	free chan struct{}
}

func newPuppets() *puppets {
	return &puppets{panics: map[service.Key]int{}, hangs: map[service.Key]int{}, hanging: map[service.Key]int{}, free: make(chan struct{})}
}

// arm lets the next messages of an actor go wrong.
func (p *puppets) arm(e event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e.do == panicActor {
		p.panics[keyOf(e.n)] += e.m
	} else {
		p.hangs[keyOf(e.n)] += e.m
	}
}

// armed reports whether something goes wrong with an actor, or will.
func (p *puppets) armed(n int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.panics[keyOf(n)]+p.hangs[keyOf(n)]+p.hanging[keyOf(n)] > 0
}

// release lets everybody go on, those that would hang later included.
func (p *puppets) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.hangs)
	close(p.free)
	p.free = make(chan struct{})
}

// intercept is for proxy.Config. A hanging actor does not look at its context:
// it is truly stuck.
func (p *puppets) intercept(_ context.Context, key service.Key, message actors.Message) {
	p.mu.Lock()
	fail, hang, free := p.panics[key] > 0, p.hangs[key] > 0, p.free
	switch {
	case fail:
		p.panics[key]--
	case hang:
		p.hangs[key]--
		p.hanging[key]++
	}
	p.mu.Unlock()
	switch {
	case fail:
		panic(fmt.Sprintf("the simulation strikes %v at %T", key, message))
	case hang:
		<-free
		p.mu.Lock()
		p.hanging[key]--
		p.mu.Unlock()
	}
}

// renderer counts, and fails for Services that are cursed.
type renderer struct {
	dataplane.Renderer
	troubles *troubles
	rendered *atomic.Int64
	// before, when set, is called before a Service is rendered.
	before func(*service.View)
}

// Service implements dataplane.Renderer.
func (r renderer) Service(view *service.View, facts *service.NodeFacts) []dataplane.Object {
	r.rendered.Add(1)
	if r.before != nil {
		r.before(view)
	}
	if r.troubles.cursed(view) {
		panic(fmt.Sprintf("%v is cursed", view.Key))
	}
	return r.Renderer.Service(view, facts)
}

// soloWriter checks that one goroutine at a time uses a writer.
type soloWriter struct {
	dataplane.Writer
	busy atomic.Int32
	// report is told what is wrong.
	report func(error)
}

func (w *soloWriter) enter() func() {
	if w.busy.Add(1) > 1 {
		w.report(fmt.Errorf("two jobs in flight for one writer"))
	}
	return func() { w.busy.Add(-1) }
}

// Write implements dataplane.Writer.
func (w *soloWriter) Write(ctx context.Context, batch *dataplane.Batch) dataplane.Receipt {
	defer w.enter()()
	return w.Writer.Write(ctx, batch)
}

// Read implements dataplane.Writer.
func (w *soloWriter) Read(ctx context.Context) ([]dataplane.Object, error) {
	defer w.enter()()
	return w.Writer.Read(ctx)
}

// Watch implements dataplane.Watcher.
func (w *soloWriter) Watch(ctx context.Context, changed func(by dataplane.Stranger)) error {
	return w.Writer.(dataplane.Watcher).Watch(ctx, changed)
}

// Owner implements dataplane.Origin.
func (w *soloWriter) Owner(o *dataplane.Object) (service.Key, bool) {
	return w.Writer.(dataplane.Origin).Owner(o)
}

// Refs implements dataplane.Origin.
func (w *soloWriter) Refs(o *dataplane.Object) []dataplane.ID {
	return w.Writer.(dataplane.Origin).Refs(o)
}

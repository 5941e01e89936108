package actors

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// drainTown is a town with two domains: "plain" and "drains". It has the connections
// that a kernel would have, and acknowledges every fragment unless told otherwise.
type drainTown struct {
	*town
	mu       sync.Mutex
	busy     map[netip.AddrPort]bool
	kernel   []service.Endpoint
	asked    []string
	failing  error
	withheld bool
	rendered map[string]int
	bodies   map[string][]string
	events   []Event
	seen     []service.View
	// order has what the domain "drains" was told: "expect" for a view, then its fragment.
	order []string
	// before is called at the begin of Busy and Held, without the lock.
	before func(ctx context.Context)
}

type drainRenderer struct {
	*drainTown
	name string
}

func (r drainRenderer) Node(*service.NodeFacts) []dataplane.Object { return nil }

func (r drainRenderer) Size(service.PortSize, *service.NodeFacts) int { return 1 }

func (r drainRenderer) Naming() dataplane.Naming { return nil }

func (r drainRenderer) Service(ctx context.Context, v *service.View, _ *service.NodeFacts) []dataplane.Object {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rendered[r.name]++
	if len(v.Ports[service.IPv4]) == 0 {
		return nil
	}
	p := v.Ports[service.IPv4][0]
	return []dataplane.Object{{ID: dataplane.ID{Name: "web"}, Body: letters(p.Cluster) + "/" + letters(p.Draining)}}
}

func (b *drainTown) Busy(ctx context.Context, view *service.View, port *service.PortView, e service.Endpoint) (bool, error) {
	b.await(ctx)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked = append(b.asked, letters([]service.Endpoint{e}))
	if view.Key != web || !slices.Contains(port.Draining, e) {
		return false, errors.New("that does not drain")
	}
	return b.busy[e.AddrPort], errors.Join(b.failing, ctx.Err())
}

func (b *drainTown) Held(ctx context.Context, _ *service.View, _ *service.PortView) ([]service.Endpoint, error) {
	b.await(ctx)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked = append(b.asked, "held")
	return b.kernel, b.failing
}

// await does what a test has for it to do before an answer.
func (b *drainTown) await(ctx context.Context) {
	b.mu.Lock()
	before := b.before
	b.mu.Unlock()
	before(ctx)
}

// let changes what the kernel is like.
func (b *drainTown) let(change func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change()
}

func (b *drainTown) Want(key service.Key, body Body) {
	b.wanted.Go(func() {
		for b.ctx.Err() == nil && !b.live(body) {
			time.Sleep(10 * time.Millisecond)
		}
	})
}

// live runs one incarnation, and reports whether it ended by itself.
func (b *drainTown) live(body Body) (ended bool) {
	defer func() { _ = recover() }()
	b.town.mu.Lock()
	b.inc++
	l := newLease(b.inc)
	b.town.mu.Unlock()
	return keep(b.ctx, l, l.woken, body) == nil
}

// submit is what a domain does with a fragment.
func (b *drainTown) submit(name string) func(*dataplane.Fragment) {
	return func(f *dataplane.Fragment) {
		b.mu.Lock()
		defer b.mu.Unlock()
		body := "gone"
		if !f.Gone {
			body = f.Objects[0].Body
		}
		b.bodies[name] = append(b.bodies[name], body)
		if name == "drains" {
			b.order = append(b.order, body)
		}
		if !b.withheld {
			b.PostAck(dataplane.Ack{Key: f.Key, Domain: name, Revision: f.Revision})
		}
	}
}

func newDrainTown(t *testing.T) *drainTown {
	t.Helper()
	b := &drainTown{town: build(t, 0), busy: map[netip.AddrPort]bool{}, rendered: map[string]int{}, bodies: map[string][]string{},
		before: func(context.Context) {}}
	d, err := NewDirectory(Config{
		Starter: b, State: b.town,
		Outputs: []Output{
			{Name: "plain", Renderer: drainRenderer{b, "plain"}, Submit: b.submit("plain"), Programmed: b.saw},
			{Name: "drains", Renderer: drainRenderer{b, "drains"}, Submit: b.submit("drains"), Submitted: b.expected, Programmed: b.saw, Drain: b, Family: service.IPv4},
		},
		Listen: func(e Event) { b.mu.Lock(); defer b.mu.Unlock(); b.events = append(b.events, e) },
	})
	if err != nil {
		t.Fatal(err)
	}
	b.Directory = d
	return b
}

func (b *drainTown) expected(_ context.Context, v service.View) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []string
	for i := range v.Ports[service.IPv4] {
		all = append(all, letters(v.Ports[service.IPv4][i].Reachable()))
	}
	b.order = append(b.order, "expect "+strings.Join(all, ","))
}

func (b *drainTown) saw(_ context.Context, v service.View) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seen = append(b.seen, v)
}

// serve says which endpoints the Service has.
func (b *drainTown) serve(all string) {
	var addresses []string
	for _, e := range set(all) {
		addresses = append(addresses, e.AddrPort.Addr().String())
	}
	s := slice("s", addresses...)
	b.town.mu.Lock()
	b.slices[web] = []*service.Slice{s}
	known := b.specs[web] != nil
	b.town.mu.Unlock()
	if known {
		b.PostSlice(web, "s", s, Cause{})
	} else {
		b.town.set(web, spec())
	}
	synctest.Wait()
}

// connect says which endpoints have connections.
func (b *drainTown) connect(all string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.busy = map[netip.AddrPort]bool{}
	for _, e := range set(all) {
		b.busy[e.AddrPort] = true
	}
}

// told returns and forgets what a domain was sent and what was asked.
func (b *drainTown) told(domain string) (bodies, asked string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	bodies, asked = strings.Join(b.bodies[domain], ", "), strings.Join(b.asked, " ")
	b.bodies[domain], b.asked = nil, nil
	return bodies, asked
}

// expect compares what the draining domain was sent and what was asked since the
// last time.
func (b *drainTown) expect(t *testing.T, when, bodies, asked string) {
	t.Helper()
	gotBodies, gotAsked := b.told("drains")
	if gotBodies != bodies || gotAsked != asked {
		t.Errorf("%s: told %q and asked %q, want %q and %q", when, gotBodies, gotAsked, bodies, asked)
	}
}

// announced returns and forgets the events of one type.
func announced[E Event](b *drainTown) (all []E) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.events = slices.DeleteFunc(b.events, func(e Event) bool {
		wanted, ok := e.(E)
		if ok {
			all = append(all, wanted)
		}
		return ok
	})
	return all
}

func pass(d time.Duration) { time.Sleep(d); synctest.Wait() }

// A drainTest runs on virtual time; the Service has the endpoints a, b and c.
func drainTest(t *testing.T, test func(t *testing.T, b *drainTown)) {
	synctest.Test(t, func(t *testing.T) {
		b := newDrainTown(t)
		b.serve("a b c")
		b.expect(t, "start", "a b c/", "held")
		test(t, b)
	})
}

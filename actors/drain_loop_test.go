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

// basin is a town with two domains: "plain" and "drains". It has the connections
// that a kernel would have, and grants every fragment a verdict unless withheld.
type basin struct {
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
	// before is called at the begin of Busy and Held, without the lock.
	before func(ctx context.Context)
}

type basinRenderer struct {
	*basin
	name string
}

func (r basinRenderer) Node(*service.NodeFacts) []dataplane.Object { return nil }

func (r basinRenderer) Naming() dataplane.Naming { return nil }

func (r basinRenderer) Service(v *service.View, _ *service.NodeFacts) []dataplane.Object {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rendered[r.name]++
	if len(v.Ports[service.IPv4]) == 0 {
		return nil
	}
	p := v.Ports[service.IPv4][0]
	return []dataplane.Object{{ID: dataplane.ID{Name: "web"}, Body: letters(p.Cluster) + "/" + letters(p.Draining)}}
}

func (b *basin) Busy(ctx context.Context, view *service.View, port *service.PortView, e service.Endpoint) (bool, error) {
	b.await(ctx)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked = append(b.asked, letters([]service.Endpoint{e}))
	if view.Key != web || !slices.Contains(port.Draining, e) {
		return false, errors.New("that does not drain")
	}
	return b.busy[e.AddrPort], errors.Join(b.failing, ctx.Err())
}

func (b *basin) Held(ctx context.Context, _ *service.View, _ *service.PortView) ([]service.Endpoint, error) {
	b.await(ctx)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked = append(b.asked, "held")
	return b.kernel, b.failing
}

// await does what a test has for it to do before an answer.
func (b *basin) await(ctx context.Context) {
	b.mu.Lock()
	before := b.before
	b.mu.Unlock()
	before(ctx)
}

// let changes what the kernel is like.
func (b *basin) let(change func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change()
}

func (b *basin) Want(key service.Key, body Body) {
	b.wanted.Go(func() {
		for b.ctx.Err() == nil && !b.live(body) {
			time.Sleep(10 * time.Millisecond)
		}
	})
}

// live runs one incarnation, and tells whether it has ended by itself.
func (b *basin) live(body Body) (ended bool) {
	defer func() { _ = recover() }()
	b.town.mu.Lock()
	b.inc++
	l := lease{b.inc}
	b.town.mu.Unlock()
	return body(b.ctx, l) == nil
}

// submit is what a domain does with a fragment.
func (b *basin) submit(name string) func(*dataplane.Fragment) {
	return func(f *dataplane.Fragment) {
		b.mu.Lock()
		defer b.mu.Unlock()
		body := "gone"
		if !f.Gone {
			body = f.Objects[0].Body
		}
		b.bodies[name] = append(b.bodies[name], body)
		if !b.withheld {
			b.PostVerdict(dataplane.Verdict{Key: f.Key, Domain: name, Revision: f.Revision})
		}
	}
}

func fillBasin(t *testing.T) *basin {
	t.Helper()
	b := &basin{town: build(t, 10), busy: map[netip.AddrPort]bool{}, rendered: map[string]int{}, bodies: map[string][]string{},
		before: func(context.Context) {}}
	d, err := NewDirectory(Config{
		Keeper: b, Truth: b.town,
		Outputs: []Output{
			{Name: "plain", Renderer: basinRenderer{b, "plain"}, Submit: b.submit("plain"), Programmed: b.saw},
			{Name: "drains", Renderer: basinRenderer{b, "drains"}, Submit: b.submit("drains"), Programmed: b.saw, Drain: b, Family: service.IPv4},
		},
		Listen: func(e Event) { b.mu.Lock(); defer b.mu.Unlock(); b.events = append(b.events, e) },
	})
	if err != nil {
		t.Fatal(err)
	}
	b.Directory = d
	return b
}

func (b *basin) saw(v service.View) { b.mu.Lock(); defer b.mu.Unlock(); b.seen = append(b.seen, v) }

// serve says which endpoints the Service has.
func (b *basin) serve(all string) {
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
func (b *basin) connect(all string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.busy = map[netip.AddrPort]bool{}
	for _, e := range set(all) {
		b.busy[e.AddrPort] = true
	}
}

// told gives and forgets what a domain was told and what was asked.
func (b *basin) told(domain string) (bodies, asked string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	bodies, asked = strings.Join(b.bodies[domain], ", "), strings.Join(b.asked, " ")
	b.bodies[domain], b.asked = nil, nil
	return bodies, asked
}

// expect compares what the draining domain was told and what was asked since the
// last time.
func (b *basin) expect(t *testing.T, when, bodies, asked string) {
	t.Helper()
	gotBodies, gotAsked := b.told("drains")
	if gotBodies != bodies || gotAsked != asked {
		t.Errorf("%s: told %q and asked %q, want %q and %q", when, gotBodies, gotAsked, bodies, asked)
	}
}

// announced gives and forgets the events of one type.
func announced[E Event](b *basin) (all []E) {
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

// A basinTest runs on virtual time; the Service has the endpoints a, b and c.
func basinTest(t *testing.T, test func(t *testing.T, b *basin)) {
	synctest.Test(t, func(t *testing.T) {
		b := fillBasin(t)
		b.serve("a b c")
		b.expect(t, "start", "a b c/", "held")
		test(t, b)
	})
}

func TestAnEndpointDrainsUntilItHasNoConnections(t *testing.T) {
	basinTest(t, func(t *testing.T, b *basin) {
		b.connect("b")
		b.serve("a")
		b.expect(t, "left", "a/b c", "")
		pass(lookMin)
		b.expect(t, "first look", "a/b", "b c")
		pass(20 * time.Second)
		b.expect(t, "while it is busy", "", "b b b")
		b.connect("")
		pass(lookMax)
		b.expect(t, "its connections have ended", "a/", "b")
		pass(time.Hour)
		b.expect(t, "later", "", "")

		var numbers []int
		for _, e := range announced[Drains](b) {
			numbers = append(numbers, e.Endpoints)
		}
		if !slices.Equal(numbers, []int{2, 1, 0}) {
			t.Errorf("%v drained by what was announced", numbers)
		}
		if cut := announced[DrainCut](b); cut != nil {
			t.Errorf("announced %v", cut)
		}
	})
}

// TestOtherDomainsDoNotNotice: they render once per change of the Service, see
// nothing of what drains, and followers are not told twice.
func TestOtherDomainsDoNotNotice(t *testing.T) {
	basinTest(t, func(t *testing.T, b *basin) {
		b.connect("b")
		b.serve("a")
		pass(10 * time.Second)
		b.connect("")
		pass(time.Minute)
		if bodies, _ := b.told("plain"); bodies != "a b c/, a/" || b.rendered["plain"] != 2 || b.rendered["drains"] != 4 {
			t.Errorf("the plain domain was told %q; rendered %v", bodies, b.rendered)
		}
		if len(b.seen) != 4 {
			t.Errorf("followers were told %d views, want two in each domain", len(b.seen))
		}
		for i := range b.seen {
			if got := drainingOf(&b.seen[i]); got != "" {
				t.Errorf("followers see %q drain", got)
			}
		}
	})
}

func TestAnEndpointThatComesBackDrainsNoMore(t *testing.T) {
	basinTest(t, func(t *testing.T, b *basin) {
		b.connect("b c")
		b.serve("a")
		b.serve("a b")
		b.expect(t, "back", "a/b c, a b/c", "")
		pass(lookMin)
		b.expect(t, "look", "", "c")
	})
}

func TestTheDeadlineCutsAndSaysSo(t *testing.T) {
	basinTest(t, func(t *testing.T, b *basin) {
		b.connect("b c")
		b.serve("a")
		pass(drainDeadline - time.Nanosecond)
		if bodies, asked := b.told("drains"); bodies != "a/b c" || len(asked) < 80*2*2 || len(asked) > 100*2*2 {
			t.Errorf("before: told %q, asked %d times", bodies, len(asked)/2)
		}
		pass(time.Nanosecond)
		b.expect(t, "at the deadline", "a/", "")
		cut := announced[DrainCut](b)
		if len(cut) != 1 || cut[0].Key != web || cut[0].Domain != "drains" || letters(cut[0].Endpoints) != "b c" || cut[0].Deadline != drainDeadline {
			t.Errorf("announced %+v", cut)
		}
		pass(time.Hour)
		b.expect(t, "later", "", "")
	})
}

func TestWithAServiceEverythingGoesAtOnce(t *testing.T) {
	basinTest(t, func(t *testing.T, b *basin) {
		b.connect("b c")
		b.serve("a")
		b.town.set(web, nil)
		synctest.Wait()
		b.expect(t, "deleted", "a/b c, gone", "")
		if b.Len() != 0 {
			t.Error("its actor has not retired")
		}
		pass(time.Hour)
		b.expect(t, "later", "", "")
		if cut := announced[DrainCut](b); cut != nil {
			t.Errorf("announced %v", cut)
		}
	})
}

// TestWhatCannotBeFoundOutKeepsAnEndpoint: until the deadline, and it is told once.
func TestWhatCannotBeFoundOutKeepsAnEndpoint(t *testing.T) {
	basinTest(t, func(t *testing.T, b *basin) {
		b.let(func() { b.failing = errors.New("no answer") })
		b.serve("a")
		pass(time.Minute)
		b.expect(t, "without answers", "a/b c", strings.TrimSpace(strings.Repeat("b c ", 8)))
		unknown := announced[DrainUnknown](b)
		if len(unknown) != 1 || letters([]service.Endpoint{unknown[0].Endpoint}) != "b" || !errors.Is(unknown[0].Err, b.failing) {
			t.Errorf("announced %+v", unknown)
		}
		b.let(func() { b.failing = nil })
		b.connect("b")
		pass(lookMax)
		b.expect(t, "with answers", "a/b", "b c")
		b.let(func() { b.failing = errors.New("no answer again") })
		pass(drainDeadline)
		if bodies, _ := b.told("drains"); bodies != "a/" {
			t.Errorf("at the deadline: told %q", bodies)
		}
		if len(announced[DrainUnknown](b)) != 1 || len(announced[DrainCut](b)) != 1 {
			t.Error("want each announced once more")
		}
	})
}

// TestNobodyIsAskedAboutWhatIsNotInForce: a write that is late does not cut.
func TestNobodyIsAskedAboutWhatIsNotInForce(t *testing.T) {
	basinTest(t, func(t *testing.T, b *basin) {
		b.let(func() { b.withheld = true })
		b.serve("a b")
		pass(time.Minute)
		b.expect(t, "not in force", "a b/c", "")
		b.PostVerdict(dataplane.Verdict{Key: web, Domain: "drains", Revision: service.Revision{Incarnation: 1, Sequence: 100}})
		pass(lookMin)
		b.expect(t, "in force", "a b/", "c")
	})
}

// TestARestartLosesNoneThatDrains: its memory is the kernel.
func TestARestartLosesNoneThatDrains(t *testing.T) {
	basinTest(t, func(t *testing.T, b *basin) {
		b.connect("b c")
		b.serve("a b")
		pass(lookMin)
		b.expect(t, "drains", "a b/c", "c")
		// It dies of the very message that lets b leave: the kernel has b with
		// full weight.
		b.let(func() { b.kernel = set("a b c") })
		b.config.Intercept = func(_ context.Context, _ service.Key, m Message) {
			if _, ok := m.(SliceChanged); ok {
				b.config.Intercept = nil
				panic("asked for")
			}
		}
		b.serve("a")
		pass(time.Second)
		b.expect(t, "restarted", "a/b c", "held")
		b.connect("c")
		pass(lookMin)
		b.expect(t, "looks go on", "a/c", "b c")
		pass(drainDeadline)
		if bodies, _ := b.told("drains"); bodies != "a/" {
			t.Errorf("at the deadline: told %q", bodies)
		}
	})
}

// TestAPanicInALookIsARestart: as any other.
func TestAPanicInALookIsARestart(t *testing.T) {
	basinTest(t, func(t *testing.T, b *basin) {
		b.connect("b")
		b.serve("a c")
		b.let(func() { b.kernel = set("b") })
		b.let(func() {
			b.before = func(context.Context) {
				b.let(func() { b.before = func(context.Context) {} })
				panic("asked for")
			}
		})
		pass(lookMin + time.Second)
		b.expect(t, "restarted", "a c/b, a c/b", "held")
		pass(lookMin)
		b.expect(t, "looks go on", "", "b")
	})
}

// TestAServiceIsServedThoughNobodyKnowsWhatIsHeld: its new connections matter more.
func TestAServiceIsServedThoughNobodyKnowsWhatIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := fillBasin(t)
		b.let(func() { b.failing = errors.New("no answer") })
		b.serve("a b")
		b.expect(t, "start", "a b/", "held")
		if unknown := announced[HeldUnknown](b); len(unknown) != 1 || unknown[0].Domain != "drains" || !errors.Is(unknown[0].Err, b.failing) {
			t.Errorf("announced %+v", unknown)
		}
		b.let(func() { b.failing = nil })
		b.serve("a")
		b.expect(t, "asked once", "a/b", "")
	})
}

// TestNewsGoFirst: a kernel that answers slowly does not hold up a change.
func TestNewsGoFirst(t *testing.T) {
	basinTest(t, func(t *testing.T, b *basin) {
		b.connect("b c")
		b.serve("a")
		b.expect(t, "left", "a/b c", "")
		b.let(func() { b.before = func(context.Context) { time.Sleep(time.Second) } })
		time.Sleep(lookMin + time.Millisecond) // the first question is put
		b.serve("a d")
		b.expect(t, "before the answer", "", "")
		pass(time.Second)
		b.expect(t, "after the answer", "a d/b c", "b")
		pass(time.Second)
		b.expect(t, "the question that was left", "", "c")
	})
}

// TestADrainerThatHangsIsGivenUp: it counts as busy.
func TestADrainerThatHangsIsGivenUp(t *testing.T) {
	basinTest(t, func(t *testing.T, b *basin) {
		b.let(func() { b.before = func(ctx context.Context) { <-ctx.Done() } })
		b.serve("a b")
		pass(lookMin + askMax)
		b.expect(t, "no answer in time", "a b/c", "c")
		if unknown := announced[DrainUnknown](b); len(unknown) != 1 || !errors.Is(unknown[0].Err, context.DeadlineExceeded) {
			t.Errorf("announced %+v", unknown)
		}
	})
}

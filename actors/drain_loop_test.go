package actors

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

func TestAnEndpointDrainsUntilItHasNoConnections(t *testing.T) {
	drainTest(t, func(t *testing.T, b *drainTown) {
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

// TestViewsAreExpectedBeforeTheyAreWritten: what drains is not expected.
func TestViewsAreExpectedBeforeTheyAreWritten(t *testing.T) {
	drainTest(t, func(t *testing.T, b *drainTown) {
		b.connect("b")
		b.serve("a")
		pass(10 * time.Second)
		want := []string{"expect a b c", "a b c/", "expect a", "a/b c", "expect a", "a/b"}
		if !slices.Equal(b.order, want) {
			t.Errorf("the domain was told %q, want %q", b.order, want)
		}
	})
}

// TestOtherDomainsDoNotNotice: they render once per change of the Service, see
// nothing of what drains, and observers are not told twice.
func TestOtherDomainsDoNotNotice(t *testing.T) {
	drainTest(t, func(t *testing.T, b *drainTown) {
		b.connect("b")
		b.serve("a")
		pass(10 * time.Second)
		b.connect("")
		pass(time.Minute)
		if bodies, _ := b.told("plain"); bodies != "a b c/, a/" || b.rendered["plain"] != 2 || b.rendered["drains"] != 4 {
			t.Errorf("the plain domain was told %q; rendered %v", bodies, b.rendered)
		}
		if len(b.seen) != 4 {
			t.Errorf("observers were told %d views, want two in each domain", len(b.seen))
		}
		for i := range b.seen {
			if got := drainingOf(&b.seen[i]); got != "" {
				t.Errorf("observers see %q drain", got)
			}
		}
	})
}

func TestAnEndpointThatComesBackDrainsNoMore(t *testing.T) {
	drainTest(t, func(t *testing.T, b *drainTown) {
		b.connect("b c")
		b.serve("a")
		b.serve("a b")
		b.expect(t, "back", "a/b c, a b/c", "")
		pass(lookMin)
		b.expect(t, "look", "", "c")
	})
}

func TestTheDeadlineCutsAndSaysSo(t *testing.T) {
	drainTest(t, func(t *testing.T, b *drainTown) {
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
	drainTest(t, func(t *testing.T, b *drainTown) {
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
	drainTest(t, func(t *testing.T, b *drainTown) {
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

// TestNobodyIsAskedAboutWhatIsNotApplied: a write that is late does not cut.
func TestNobodyIsAskedAboutWhatIsNotApplied(t *testing.T) {
	drainTest(t, func(t *testing.T, b *drainTown) {
		b.let(func() { b.withheld = true })
		b.serve("a b")
		pass(time.Minute)
		b.expect(t, "not applied", "a b/c", "")
		b.PostAck(dataplane.Ack{Key: web, Domain: "drains", Revision: service.Revision{Incarnation: 1, Sequence: 100}})
		pass(lookMin)
		b.expect(t, "applied", "a b/", "c")
	})
}

// TestARestartLosesNoneThatDrains: its memory is the kernel.
func TestARestartLosesNoneThatDrains(t *testing.T) {
	drainTest(t, func(t *testing.T, b *drainTown) {
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
	drainTest(t, func(t *testing.T, b *drainTown) {
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
		b := newDrainTown(t)
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

// TestHeldIsAskedAgainWhileTheKernelIsBusy: nothing is cut until it answers, and the
// actor does not look stuck meanwhile.
func TestHeldIsAskedAgainWhileTheKernelIsBusy(t *testing.T) {
	for name, busy := range map[string]func(context.Context) error{
		"no answer in time": func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) },
		"busy at once":      func(context.Context) error { return fmt.Errorf("here: %w", dataplane.ErrBusy) },
	} {
		for _, lasts := range []time.Duration{20 * time.Second, time.Hour} {
			t.Run(fmt.Sprint(name, " for ", lasts), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := newDrainTown(t)
					began, longest, last := time.Now(), time.Duration(0), time.Now()
					b.let(func() {
						b.kernel = set("a c")
						b.before = func(ctx context.Context) {
							longest, last = max(longest, time.Since(last)), time.Now()
							var err error
							if time.Since(began) < lasts {
								err = busy(ctx)
							}
							b.let(func() { b.failing = err })
						}
					})
					b.connect("c")
					b.serve("a b")
					pass(min(lasts, heldMax) - time.Second)
					if bodies, asked := b.told("drains"); bodies != "" || len(asked) < len("held")*9 || len(asked) > len("held ")*600 {
						t.Errorf("while it is busy: told %q and asked %q", bodies, asked)
					}
					pass(2*askMax + heldPause + time.Second)
					want, unknown := "a b/c", 0
					if lasts > heldMax { // new connections matter more by then
						want, unknown = "a b/", 1
					}
					if bodies, _ := b.told("drains"); bodies != want {
						t.Errorf("then: told %q, want %q", bodies, want)
					}
					if got := announced[HeldUnknown](b); len(got) != unknown {
						t.Errorf("announced %+v, want %d", got, unknown)
					}
					if longest > askMax+heldPause {
						t.Errorf("%v between two questions", longest)
					}
				})
			})
		}
	}
}

// TestNewsGoFirst: a kernel that answers slowly does not hold up a change.
func TestNewsGoFirst(t *testing.T) {
	drainTest(t, func(t *testing.T, b *drainTown) {
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
	drainTest(t, func(t *testing.T, b *drainTown) {
		b.let(func() { b.before = func(ctx context.Context) { <-ctx.Done() } })
		b.serve("a b")
		pass(lookMin + askMax)
		b.expect(t, "no answer in time", "a b/c", "c")
		if unknown := announced[DrainUnknown](b); len(unknown) != 1 || !errors.Is(unknown[0].Err, context.DeadlineExceeded) {
			t.Errorf("announced %+v", unknown)
		}
	})
}

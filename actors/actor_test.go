package actors

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/sluice-proxy/sluice/mailbox"
	"github.com/sluice-proxy/sluice/service"
)

// fencible is a lease that can be fenced.
type fencible struct {
	lease
	fenced atomic.Bool
}

func (f *fencible) Fenced() bool { return f.fenced.Load() }

// Whoever is stuck has been given up and reads nothing: a post must nudge the
// keeper, who may have parked the child. And when the stuck one comes back at
// last, its successor still lives there.
func TestAStuckActorDoesNotLiveAtItsAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := build(t, 0)
		var hang atomic.Bool
		release := make(chan struct{})
		d.config.Intercept = func(context.Context, service.Key, Message) {
			if hang.Swap(false) {
				<-release
			}
		}
		home := &address{key: web, mailbox: mailbox.New[slot](actorSlots, merge)}
		nudgesOf := func(when string, want int) {
			t.Helper()
			before := d.nudges
			d.deliver(home, slot{kind: slotSpec}, SpecChanged{Spec: spec()})
			synctest.Wait()
			if got := d.nudges - before; got != want {
				t.Errorf("%s: %d nudges, want %d", when, got, want)
			}
		}
		moveIn := func(ctx context.Context, l Lease) {
			d.wanted.Go(func() { _ = d.run(ctx, home, l) })
			synctest.Wait()
		}
		d.specs[web] = spec()

		nudgesOf("nobody has moved in", 1)
		ctx, abandon := context.WithCancel(d.ctx)
		stuck := &fencible{}
		moveIn(ctx, stuck)
		hang.Store(true)
		nudgesOf("this gets it stuck", 0)
		stuck.fenced.Store(true)
		abandon()
		nudgesOf("it was given up", 1)
		moveIn(d.ctx, &fencible{})
		nudgesOf("its successor lives there", 0)
		close(release)
		synctest.Wait()
		nudgesOf("it has come back and gone", 0)
	})
}

// TestAVerdictNudgesNobody: it is an answer. One that dies of its verdicts would
// otherwise be given up never, for each life earns another.
func TestAVerdictNudgesNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := build(t, 0)
		home := &address{key: web, mailbox: mailbox.New[slot](actorSlots, merge)}
		d.deliver(home, slot{kind: slotVerdict, name: "one"}, VerdictGiven{})
		if d.nudges != 0 {
			t.Errorf("%d nudges", d.nudges)
		}
		d.deliver(home, slot{kind: slotFacts}, FactsChanged{})
		if d.nudges != 1 {
			t.Errorf("%d nudges after new facts, want 1", d.nudges)
		}
	})
}

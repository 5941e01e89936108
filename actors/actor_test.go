package actors

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-proxy/sluice/mailbox"
	"github.com/sluice-proxy/sluice/service"
)

// fencible is a lease that can be fenced.
type fencible struct {
	lease
	fenced atomic.Bool
}

func (f *fencible) Fenced() bool { return f.fenced.Load() }

// A stuck actor has been given up and reads nothing, so a post must nudge the supervisor,
// which may have parked it. When the stuck actor returns at last, its successor still
// has the address.
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
			d.wanted.Go(func() {
				_ = keep(ctx, l, l.(*fencible).woken, func(ctx context.Context, l Lease) (bool, error) { return d.run(ctx, home, l) })
			})
			synctest.Wait()
		}
		d.specs[web] = spec()

		nudgesOf("nobody has moved in", 1)
		ctx, abandon := context.WithCancel(d.ctx)
		stuck := &fencible{lease: newLease(1)}
		moveIn(ctx, stuck)
		hang.Store(true)
		nudgesOf("this gets it stuck", 0)
		stuck.fenced.Store(true)
		abandon()
		nudgesOf("it was given up", 1)
		moveIn(d.ctx, &fencible{lease: newLease(2)})
		nudgesOf("its successor lives there", 0)
		close(release)
		synctest.Wait()
		nudgesOf("it has come back and gone", 0)
	})
}

// TestAnAckIsNoNudge: an ack is an answer and no new input. Otherwise an actor that fails
// at its acks would never stay parked.
func TestAnAckIsNoNudge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := build(t, 0)
		home := &address{key: web, mailbox: mailbox.New[slot](actorSlots, merge)}
		d.deliver(home, slot{kind: slotAck, name: "one"}, Acknowledged{})
		if d.nudges != 0 {
			t.Errorf("%d nudges", d.nudges)
		}
		d.deliver(home, slot{kind: slotFacts}, FactsChanged{})
		if d.nudges != 1 {
			t.Errorf("%d nudges after new facts, want 1", d.nudges)
		}
	})
}

func TestANegativeDeadlineIsRejected(t *testing.T) {
	v := build(t, 0)
	_, err := NewDirectory(Config{Starter: v, State: v, Outputs: []Output{{Name: "one", DrainDeadline: -1}}})
	if err == nil || !strings.Contains(err.Error(), `"one"`) {
		t.Errorf("%v", err)
	}
}

// TestNoTimerWhereNothingDrains: an idle actor has none, in any mode.
func TestNoTimerWhereNothingDrains(t *testing.T) {
	a := &actor{machine: live(slice("s", "10.0.0.1")), lease: newLease(1)}
	if n := testing.AllocsPerRun(100, a.setAlarm); n != 0 || a.alarm != nil {
		t.Errorf("%v allocations, alarm %v", n, a.alarm)
	}
	d := newDrain()
	a.machine.drains = []*drain{d}
	d.take(viewOf(tcp("a b")), noon)
	a.setAlarm()
	if a.alarm != nil {
		t.Error("nothing drains: must be no alarm")
	}
	d.take(viewOf(tcp("a")), noon)
	a.setAlarm()
	if a.alarm == nil {
		t.Fatal("b drains: must be an alarm")
	}
	d.take(viewOf(tcp("a b")), noon)
	a.setAlarm()
	if a.alarm != nil {
		t.Error("nothing drains any more: must be no alarm")
	}
}

// pulse is a lease that counts what an actor says about itself.
type pulse struct {
	fencible
	begun int
}

func (p *pulse) Begin() { p.begun++ }

// watched is an actor with what drains, outside its loop.
func watched(b *drainTown, l Lease) (*actor, *drain) {
	home := &address{key: web, mailbox: mailbox.New[slot](actorSlots, merge)}
	a := &actor{address: home, directory: b.Directory, lease: l, machine: NewMachine(web, 1, b.config.Outputs, 0)}
	a.machine.sent[1] = sent{submitted: true, settled: true}
	d := a.machine.drain(1)
	d.asked = true
	d.take(viewOf(tcp("a b c")), time.Now().Add(-time.Hour))
	d.take(viewOf(tcp("a")), time.Now().Add(-lookMin))
	d.show()
	return a, d
}

// TestEachQuestionHasAMessagesTime: many of them are not one that is stuck.
func TestEachQuestionHasAMessagesTime(t *testing.T) {
	b := newDrainTown(t)
	p := &pulse{}
	a, d := watched(b, p)
	a.machine.Look(1, time.Now())
	a.ask(t.Context(), 1)
	if len(b.asked) != 2 || p.begun != 2 {
		t.Errorf("%d questions, begun %d times", len(b.asked), p.begun)
	}
	b.kernel = set("b")
	d.asked = false
	d.take(viewOf(tcp("a"), with(tcp("a"), func(p *service.PortView) { p.Port = 81 }),
		with(tcp("a"), func(p *service.PortView) { p.Port, p.Protocol = 82, service.SCTP })), time.Now())
	a.ask(t.Context(), 1)
	if len(b.asked) != 4 || p.begun != 4 {
		t.Errorf("%d questions, begun %d times; want one more for each port that drains", len(b.asked), p.begun)
	}
}

// TestAnAbandonedActorSendsNothing: its successor does.
func TestAnAbandonedActorSendsNothing(t *testing.T) {
	b := newDrainTown(t)
	p := &pulse{}
	a, _ := watched(b, p)
	b.connect("b")
	p.fenced.Store(true)
	if err := a.look(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(b.events) != 0 || len(b.bodies) != 0 {
		t.Errorf("told %v and submitted %v", b.events, b.bodies)
	}
}

// TestAnActorStoppedBeforeItsAnswersSendsNothing: its fragment would cut what is held.
func TestAnActorStoppedBeforeItsAnswersSendsNothing(t *testing.T) {
	b := newDrainTown(t)
	a, _ := watched(b, &pulse{})
	ctx, stop := context.WithCancel(t.Context())
	b.before = func(context.Context) { stop() }
	a.machine.drain(1).asked = false
	a.machine.Hydrate(service.Snapshot{Spec: spec()}, facts, time.Now())
	a.machine.Conclude(time.Now())
	a.render(ctx)
	if bodies := b.bodies["drains"]; len(bodies) != 0 || len(announced[HeldUnknown](b)) != 0 {
		t.Errorf("submitted %q, told %v", bodies, b.events)
	}
}

// TestAnActorStoppedWhileItsViewIsRecordedSendsNothing: the record may be incomplete.
func TestAnActorStoppedWhileItsViewIsRecordedSendsNothing(t *testing.T) {
	b := newDrainTown(t)
	a, _ := watched(b, &pulse{})
	ctx, stop := context.WithCancel(t.Context())
	b.Directory.config.Outputs[1].Submitted = func(context.Context, service.View) { stop() }
	a.machine.Hydrate(service.Snapshot{Spec: spec()}, facts, time.Now())
	a.machine.Conclude(time.Now())
	a.render(ctx)
	if bodies := b.bodies["drains"]; ctx.Err() == nil || len(bodies) != 0 {
		t.Errorf("submitted %q", bodies)
	}
}

// A Service that goes and comes back between two turns is one message. Changes of its
// slices in between were not posted, so they must be read.
func TestAServiceThatWasGoneBetweenTwoTurnsIsReadAnew(t *testing.T) {
	gone, back := SpecChanged{}, SpecChanged{Spec: spec()}
	tests := []struct {
		name     string
		messages []Message
		stale    bool
	}{
		{"changed", []Message{back, back}, false},
		{"gone", []Message{back, gone}, false},
		{"gone and back", []Message{gone, back}, true},
		{"gone, back and changed", []Message{gone, back, back}, true},
		{"gone, back and gone", []Message{gone, back, gone}, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			message := test.messages[0]
			for _, newer := range test.messages[1:] {
				message = merge(message, newer)
			}
			m := live(slice("s", "10.0.0.1"))
			turn(m)
			m.Step(message)
			if m.Stale() != test.stale {
				t.Errorf("stale: %v, want %v", m.Stale(), test.stale)
			}
		})
	}
}

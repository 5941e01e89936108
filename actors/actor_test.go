// SPDX-License-Identifier: Apache-2.0

package actors

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/mailbox"
	"github.com/sluice-proxy/sluice/service"
)

// fencible is a lease that can be fenced.
type fencible struct {
	lease
	fenced atomic.Bool
}

func (f *fencible) Fenced() bool { return f.fenced.Load() }

// TestDirectory_StuckActorLosesAddress: a post to an abandoned stuck actor wakes the supervisor, which may have parked
// it. When the stuck actor returns, its successor keeps the address.
func TestDirectory_StuckActorLosesAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := build(t)
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

// TestActor_AckDoesNotWake: an ack does not wake the supervisor, but new facts do. Otherwise an actor that fails at its
// acks would never stay parked.
func TestActor_AckDoesNotWake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := build(t)
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

// stopping is a renderer that does something in the middle.
type stopping struct {
	renderer
	act func()
}

func (r stopping) Service(ctx context.Context, v *service.View, on *service.NodeFacts) []dataplane.Object {
	r.act()
	return r.renderer.Service(ctx, v, on)
}

// TestActor_StoppedSendsNothing: an actor that is stopped or fenced in a turn submits no fragment. Its output may be
// incomplete, and a fenced actor has a successor.
func TestActor_StoppedSendsNothing(t *testing.T) {
	for _, when := range []string{"never", "while it renders", "while its view is told", "fenced"} {
		v := build(t)
		ctx, stop := context.WithCancel(t.Context())
		l := &fencible{lease: newLease(1)}
		act := func(at string) func() {
			return func() {
				if at == when {
					stop()
				}
			}
		}
		output := &v.Directory.config.Outputs[0]
		output.Renderer = stopping{act: act("while it renders")}
		output.Submitted = func(context.Context, service.View) { act("while its view is told")() }
		l.fenced.Store(when == "fenced")
		home := &address{key: web, mailbox: mailbox.New[slot](actorSlots, merge)}
		a := v.incarnate(home, l)
		v.specs[web] = spec()
		if err := a.turn(ctx); !errors.Is(err, ctx.Err()) {
			t.Errorf("%s: %v", when, err)
		}
		if f := v.fragment(web); (f != nil) != (when == "never") {
			t.Errorf("%s: submitted %+v", when, f)
		}
		stop()
	}
}

// TestActor_ViewSentBeforeFragment: an actor reports the view before it submits the fragment, so that observers know
// the view before packets follow the fragment.
func TestActor_ViewSentBeforeFragment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := build(t)
		var order []string
		output := &v.Directory.config.Outputs[0]
		submit := output.Submit
		output.Submit = func(f *dataplane.Fragment) { order = append(order, "fragment"); submit(f) }
		output.Submitted = func(context.Context, service.View) { order = append(order, "expected") }
		output.Programmed = func(context.Context, service.View) { order = append(order, "programmed") }
		v.set(web, spec())
		synctest.Wait()
		v.PostAck(dataplane.Ack{Key: web, Domain: "one", Revision: v.fragment(web).Revision})
		synctest.Wait()
		if want := []string{"expected", "fragment", "programmed"}; !slices.Equal(order, want) {
			t.Errorf("%q, want %q", order, want)
		}
	})
}

// TestActor_ServiceRecreatedBetweenTurns: an actor whose Service is deleted and recreated between two turns is stale
// and has to read its slices again. Changes of the slices in between were not posted.
func TestActor_ServiceRecreatedBetweenTurns(t *testing.T) {
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

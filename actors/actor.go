package actors

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/mailbox"
	"github.com/sluice-proxy/sluice/service"
)

// address is where messages for one key go. It outlives the actor behind it.
type address struct {
	key     service.Key
	mailbox *mailbox.Mailbox[slot, Message]
	// lease belongs to the incarnation that takes from the mailbox; nil without
	// one. The lease of an abandoned incarnation stays until it returns or a
	// successor replaces it.
	lease atomic.Pointer[Lease]
}

// attended reports whether an actor takes from the mailbox. If none does, a post
// nudges the keeper.
func (h *address) attended() bool {
	lease := h.lease.Load()
	return lease != nil && !(*lease).Fenced()
}

const (
	// actorSlots bounds an actor's mailbox: slices plus a few. Past it the mailbox
	// turns stale and the actor reads a snapshot, which is cheaper anyway.
	actorSlots = 256
	// askMax bounds one question to a Drainer. It is well below the message
	// deadline.
	askMax = 2 * time.Second
)

// actor is the loop around one machine: one incarnation at one address. It carries
// out what the machine decides.
type actor struct {
	*address
	directory *Directory
	lease     Lease
	machine   *Machine
	// alarm fires when the machine wants to Look; nil while nothing drains.
	alarm *time.Timer
}

// run is the body of one incarnation.
func (d *Directory) run(ctx context.Context, home *address, lease Lease) error {
	home.lease.Store(&lease)
	defer home.lease.CompareAndSwap(&lease, nil)
	a := &actor{address: home, directory: d, lease: lease,
		machine: NewMachine(home.key, lease.Incarnation(), d.config.Outputs)}
	home.mailbox.MarkStale()
	for {
		looking := false
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-home.mailbox.Wake():
		case <-a.alarmed():
			looking = !a.news() // messages go first
		}
		if ctx.Err() != nil {
			return ctx.Err() // the next incarnation handles what waits
		}
		if err := a.step(ctx, looking); err != nil {
			return err
		}
		if a.machine.State() == Retired && d.leave(home) {
			return nil
		}
		a.setAlarm()
	}
}

func (a *actor) step(ctx context.Context, looking bool) error {
	if looking {
		return a.look(ctx)
	}
	return a.turn(ctx)
}

// turn takes everything that waits, steps the machine once per message, and submits
// at most one fragment per domain.
func (a *actor) turn(ctx context.Context) error {
	entries, stale := a.mailbox.Take(0)
	a.lease.Begin()
	defer a.lease.End()
	a.machine.Begin(time.Now())
	if stale {
		a.hydrate()
	}
	for _, e := range entries {
		if intercept := a.directory.config.Intercept; intercept != nil {
			intercept(ctx, a.key, e.Message)
		}
		if _, changed := e.Message.(FactsChanged); changed {
			// Read after Take: these are the facts of the post, or newer ones.
			a.machine.SetFacts(a.directory.config.Truth.Facts())
		}
		a.machine.Step(e.Message)
	}
	if a.machine.Stale() {
		a.hydrate()
	}
	if a.machine.Conclude(time.Now()) {
		a.render(ctx)
	}
	a.report()
	return ctx.Err()
}

// hydrate reads the current state.
func (a *actor) hydrate() {
	truth := a.directory.config.Truth
	a.machine.Hydrate(truth.Snapshot(a.key), truth.Facts())
}

// render submits one fragment per domain. An actor that is told to stop submits
// nothing more: it may not know yet which endpoints the kernel holds.
func (a *actor) render(ctx context.Context) {
	for i := range a.directory.config.Outputs {
		a.ask(ctx, i)
		if ctx.Err() != nil || !a.submit(i) {
			return
		}
	}
	a.machine.Submitted()
}

// submit renders for one domain and submits the fragment unless it repeats the last
// one. A fenced actor keeps its fragment; submit reports false then.
func (a *actor) submit(i int) bool {
	output := &a.directory.config.Outputs[i]
	view, facts := a.machine.View(i)
	a.tell()
	var objects []dataplane.Object
	if view == nil {
		objects = output.Renderer.Node(facts)
	} else {
		objects = output.Renderer.Service(view, facts)
	}
	fragment := a.machine.Fragment(i, objects)
	if fragment == nil {
		return true
	}
	if a.lease.Fenced() {
		return false
	}
	if output.Submitted != nil && view != nil {
		output.Submitted(a.machine.Present())
	}
	fragment.Trail.Rendered = dataplane.MomentOf(time.Now())
	output.Submit(fragment)
	return true
}

// report passes on the views that have come into force.
func (a *actor) report() {
	for i, output := range a.directory.config.Outputs {
		if output.Programmed == nil {
			continue
		}
		if view, news := a.machine.Programmed(i); news && !a.lease.Fenced() {
			output.Programmed(view)
		}
	}
}

// look checks the draining endpoints and submits where some of them are done.
func (a *actor) look(ctx context.Context) error {
	a.lease.Begin()
	defer a.lease.End()
	a.machine.Begin(time.Now())
	defer a.machine.Submitted()
	for i := range a.directory.config.Outputs {
		a.machine.Look(i, time.Now())
		a.ask(ctx, i)
		if ctx.Err() != nil || a.machine.Changed(i) && !a.submit(i) {
			break
		}
	}
	return ctx.Err()
}

// ask puts the machine's questions about one domain to its Drainer.
func (a *actor) ask(ctx context.Context, i int) {
	drainer := a.directory.config.Outputs[i].Drain
	if drainer == nil {
		return
	}
	for {
		q, ok := a.machine.Question(i, time.Now(), a.news())
		if !ok {
			break
		}
		a.lease.Begin() // each question has a message's time
		answer := q.put(ctx, drainer)
		if ctx.Err() != nil {
			return
		}
		a.machine.Answer(i, q, answer, time.Now())
	}
	a.tell()
}

func (q Question) put(ctx context.Context, drainer Drainer) (answer Answer) {
	ctx, cancel := context.WithTimeout(ctx, askMax)
	defer cancel()
	if q.held {
		answer.Held, answer.Err = drainer.Held(ctx, q.View, q.Port)
	} else {
		answer.Busy, answer.Err = drainer.Busy(ctx, q.View, q.Port, q.Endpoint)
	}
	return answer
}

// tell passes on the machine's events.
func (a *actor) tell() {
	for _, e := range a.machine.Events() {
		if !a.lease.Fenced() {
			a.directory.config.Listen(e)
		}
	}
}

// news reports whether messages wait.
func (a *actor) news() bool { return a.mailbox.Len() > 0 }

// alarmed fires when the machine wants to Look.
func (a *actor) alarmed() <-chan time.Time {
	if a.alarm == nil {
		return nil
	}
	return a.alarm.C
}

// setAlarm sets the alarm to the time when the machine wants to Look.
func (a *actor) setAlarm() {
	at := a.machine.Due()
	switch {
	case !at.IsZero() && a.alarm == nil:
		a.alarm = time.NewTimer(time.Until(at))
	case !at.IsZero():
		a.alarm.Reset(time.Until(at))
	case a.alarm != nil:
		a.alarm.Stop()
		a.alarm = nil
	}
}

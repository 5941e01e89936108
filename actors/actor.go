package actors

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/internal/sleep"
	"github.com/sluice-proxy/sluice/mailbox"
	"github.com/sluice-proxy/sluice/service"
)

// address is where messages for one key go. It outlives the actor behind it.
type address struct {
	key     service.Key
	mailbox *mailbox.Mailbox[slot, Message]
	// resident is the actor that takes from the mailbox; nil without one. An abandoned
	// one stays until it returns or a successor replaces it.
	resident atomic.Pointer[actor]
	// news is set from the post of new input until a turn takes it.
	news atomic.Bool
}

// call wakes the actor that takes from the mailbox, and reports whether there is one.
func (h *address) call() bool {
	resident := h.resident.Load()
	if resident == nil || resident.lease.Fenced() {
		return false
	}
	resident.lease.Wake()
	return true
}

const (
	// actorSlots bounds an actor's mailbox: slices plus a few. Past it the mailbox
	// turns stale and the actor reads a snapshot, which is cheaper anyway.
	actorSlots = 256
	// askMax bounds one question to a Drainer. It is well below the message
	// deadline.
	askMax = 2 * time.Second
)

// actor carries out what one machine decides: one incarnation at one address. Between
// two turns it rests and has no goroutine.
type actor struct {
	*address
	directory *Directory
	lease     Lease
	machine   *Machine
	// alarm wakes the actor when the machine wants to Look; nil while nothing drains.
	alarm *time.Timer
}

// run is the body of every incarnation at an address.
func (d *Directory) run(ctx context.Context, home *address, lease Lease) (rests bool, err error) {
	a := home.resident.Load()
	if a == nil || a.lease != lease {
		a = d.incarnate(home, lease)
	}
	defer func() {
		if rests {
			return
		}
		a.vacate()
		if home.news.Load() {
			// It arrived while this incarnation failed, and only called the actor.
			d.config.Starter.Nudge(home.key)
		}
	}()
	return a.step(ctx)
}

// incarnate makes the actor of a new incarnation, which has to read everything.
func (d *Directory) incarnate(home *address, lease Lease) *actor {
	a := &actor{address: home, directory: d, lease: lease,
		machine: NewMachine(home.key, lease.Incarnation(), d.config.Outputs, d.config.ObjectsMax)}
	home.resident.Store(a)
	home.mailbox.MarkStale()
	return a
}

func (a *actor) vacate() {
	a.resident.CompareAndSwap(a, nil)
	if a.alarm != nil {
		a.alarm.Stop()
	}
}

// step does what is due. What comes meanwhile calls the actor again.
func (a *actor) step(ctx context.Context) (rests bool, err error) {
	switch {
	case ctx.Err() != nil:
		return false, ctx.Err() // the next incarnation handles what waits
	case a.mailbox.Waits(): // messages go first
		err = a.turn(ctx)
	case a.late(time.Now()):
		err = a.look(ctx)
	}
	if err != nil {
		return false, err
	}
	if a.machine.State() == Retired && a.directory.leave(a.address) {
		return false, nil
	}
	a.setAlarm()
	return true, nil
}

// turn takes everything that waits, steps the machine once per message, and submits
// at most one fragment per domain.
func (a *actor) turn(ctx context.Context) error {
	a.address.news.Store(false)
	entries, stale := a.mailbox.Take()
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
			a.machine.SetFacts(a.directory.config.State.Facts())
		}
		a.machine.Step(e.Message)
	}
	if a.machine.Stale() {
		a.hydrate()
	}
	if a.machine.Conclude(time.Now()) {
		a.render(ctx)
	}
	a.tell()
	a.report(ctx)
	a.machine.Forget()
	return ctx.Err()
}

// hydrate reads the current state.
func (a *actor) hydrate() {
	truth := a.directory.config.State
	a.machine.Hydrate(truth.Snapshot(a.key), truth.Facts(), time.Now())
}

// render submits one fragment per domain. A domain whose kernel is too busy to answer waits,
// and no other domain waits for it. An actor that is told to stop submits nothing more: it
// may not know yet which endpoints the kernel holds.
func (a *actor) render(ctx context.Context) {
	// First all domains, then again and again those that wait.
	waiting := make([]int, 0, len(a.directory.config.Outputs))
	for i := range a.directory.config.Outputs {
		waiting = append(waiting, i)
	}
	for ; len(waiting) > 0; waiting = waiting[1:] {
		i := waiting[0]
		open := a.ask(ctx, i)
		switch {
		case ctx.Err() != nil:
			return
		case open:
			waiting = append(waiting, i)
		case !a.submit(ctx, i):
			return
		}
	}
	a.machine.Submitted()
}

// submit renders for one domain and submits the fragment unless it repeats the last
// one. An actor that is fenced or told to stop keeps its fragment; submit reports false then.
func (a *actor) submit(ctx context.Context, i int) bool {
	output := &a.directory.config.Outputs[i]
	view, facts := a.machine.View(i)
	a.tell()
	var objects []dataplane.Object
	if view == nil {
		objects = dataplane.RenderNode(ctx, output.Renderer, facts)
	} else {
		objects = output.Renderer.Service(ctx, view, facts)
	}
	if ctx.Err() != nil {
		return false // and it may be a part
	}
	fragment := a.machine.Fragment(i, objects)
	if fragment == nil {
		return true
	}
	if a.lease.Fenced() {
		return false
	}
	if output.Submitted != nil && view != nil {
		if output.Submitted(ctx, a.machine.Present()); ctx.Err() != nil {
			return false
		}
	}
	fragment.Trace.Rendered = dataplane.MomentOf(time.Now())
	output.Submit(fragment)
	return true
}

// report passes on the views that have come into force.
func (a *actor) report(ctx context.Context) {
	for i, output := range a.directory.config.Outputs {
		if output.Programmed == nil {
			continue
		}
		if view, news := a.machine.Programmed(i); news && !a.lease.Fenced() {
			output.Programmed(ctx, view)
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
		if ctx.Err() != nil || a.machine.Changed(i) && !a.submit(ctx, i) {
			break
		}
	}
	return ctx.Err()
}

// ask puts the machine's questions about one domain to its Drainer. It returns true if one
// has to be put again after a pause: the next call begins with that.
func (a *actor) ask(ctx context.Context, i int) (open bool) {
	drainer := a.directory.config.Outputs[i].Drain
	if drainer == nil {
		return false
	}
	defer a.tell()
	for asked := false; ; asked = true {
		q, ok := a.machine.ConnectionQuery(i, time.Now(), a.mailbox.Waits())
		if !ok || asked && q.pause > 0 {
			return ok
		}
		a.lease.Begin() // each question has a message's time
		answer := q.put(ctx, drainer)
		if ctx.Err() != nil {
			return false
		}
		a.machine.Answer(i, q, answer, time.Now())
	}
}

func (q ConnectionQuery) put(ctx context.Context, drainer Drainer) (answer Answer) {
	if q.pause > 0 && !sleep.For(ctx, q.pause) {
		return answer
	}
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

// late reports whether the machine wants to Look by now.
func (a *actor) late(now time.Time) bool {
	at := a.machine.Due()
	return !at.IsZero() && !at.After(now)
}

// setAlarm sets the alarm to the time when the machine wants to Look.
func (a *actor) setAlarm() {
	at := a.machine.Due()
	switch {
	case !at.IsZero() && a.alarm == nil:
		a.alarm = time.AfterFunc(time.Until(at), a.lease.Wake)
	case !at.IsZero():
		a.alarm.Reset(time.Until(at))
	case a.alarm != nil:
		a.alarm.Stop()
		a.alarm = nil
	}
}

// SPDX-License-Identifier: Apache-2.0

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
	// resident is the actor that takes from the mailbox; nil without one. An abandoned actor stays until it returns or
	// a new actor replaces it.
	resident atomic.Pointer[actor]
	// news is set when new input is posted, until a turn takes it.
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

// actorSlots is the capacity of an actor's mailbox: one slot for each slice, plus a few. If more messages wait, the
// mailbox turns stale and the actor reads a snapshot, which is cheaper anyway.
const actorSlots = 256

// actor carries out what one machine decides: one incarnation at one address. Between
// two turns it rests and has no goroutine.
type actor struct {
	*address
	directory *Directory
	lease     Lease
	machine   *Machine
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
			// The input arrived while this incarnation failed: it woke this actor, and did not nudge the starter.
			d.config.Starter.Nudge(home.key)
		}
	}()
	return a.step(ctx)
}

// incarnate makes the actor of a new incarnation, which has to read everything.
func (d *Directory) incarnate(home *address, lease Lease) *actor {
	a := &actor{address: home, directory: d, lease: lease,
		machine: NewMachine(home.key, lease.Incarnation(), d.config.Outputs)}
	home.resident.Store(a)
	home.mailbox.MarkStale()
	return a
}

func (a *actor) vacate() { a.resident.CompareAndSwap(a, nil) }

// step handles the waiting messages. Messages that arrive in the meantime wake the actor again.
func (a *actor) step(ctx context.Context) (rests bool, err error) {
	if ctx.Err() != nil {
		return false, ctx.Err() // the next incarnation handles the waiting messages
	}
	if a.mailbox.Waits() {
		if err := a.turn(ctx); err != nil {
			return false, err
		}
	}
	retired := a.machine.State() == Retired && a.directory.leave(a.address)
	return !retired, nil
}

// turn takes everything that waits, steps the machine once per message, and submits
// at most one fragment per domain.
func (a *actor) turn(ctx context.Context) error {
	a.address.news.Store(false)
	entries, stale := a.mailbox.Take()
	a.lease.Begin()
	defer a.lease.End()
	began := time.Now()
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
	ready := a.machine.Conclude(ctx, began)
	if a.submit(ctx, &ready); ctx.Err() != nil {
		return ctx.Err()
	}
	a.machine.Forget()
	return nil
}

// hydrate reads the current state.
func (a *actor) hydrate() {
	truth := a.directory.config.State
	a.machine.Hydrate(truth.Snapshot(a.key), truth.Facts(), time.Now())
}

// submit carries out what the machine has decided. An actor that is fenced or told to stop submits nothing more.
func (a *actor) submit(ctx context.Context, ready *Ready) {
	stopped := func() bool { return ctx.Err() != nil || a.lease.Fenced() }
	for _, e := range ready.Events {
		if !stopped() {
			a.directory.config.Listen(e)
		}
	}
	for i, fragment := range ready.Fragments {
		output := &a.directory.config.Outputs[i]
		if fragment == nil || stopped() {
			continue
		}
		if output.Submitted != nil && ready.View != nil {
			output.Submitted(ctx, *ready.View)
		}
		if stopped() {
			return // and Submitted may have been interrupted
		}
		fragment.Trace.Rendered = dataplane.MomentOf(time.Now())
		output.Submit(fragment)
	}
	for _, i := range ready.Programmed {
		if !stopped() {
			a.directory.config.Outputs[i].Programmed(ctx, *ready.View)
		}
	}
}

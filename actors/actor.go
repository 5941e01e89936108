package actors

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/mailbox"
	"github.com/sluice-proxy/sluice/service"
)

// address is where one key's messages go. It outlives the actor behind it.
type address struct {
	key     service.Key
	mailbox *mailbox.Mailbox[slot, Message]
	// tenant is the lease of the incarnation that takes from the mailbox, nil
	// when there is none. An abandoned one stays until it returns or another
	// moves in.
	tenant atomic.Pointer[Lease]
}

// livedIn reports whether somebody takes from the mailbox; when nobody does, a
// post nudges the keeper.
func (h *address) livedIn() bool {
	tenant := h.tenant.Load()
	return tenant != nil && !(*tenant).Fenced()
}

// actorSlots bounds an actor's mailbox: slices plus a few. Past it the mailbox
// turns stale and the actor reads a snapshot, which is cheaper anyway.
const actorSlots = 256

// actor is the loop around one machine: one incarnation at one address. It
// makes no decisions.
type actor struct {
	*address
	directory *Directory
	lease     Lease
	machine   *Machine
	// alarm is when to look at what drains; nil when nothing does.
	alarm *time.Timer
}

// run is the body of one incarnation.
func (d *Directory) run(ctx context.Context, home *address, lease Lease) error {
	home.tenant.Store(&lease)
	defer home.tenant.CompareAndSwap(&lease, nil)
	a := &actor{address: home, directory: d, lease: lease,
		machine: NewMachine(home.key, lease.Incarnation(), d.names)}
	a.prepareDrains()
	home.mailbox.MarkStale()
	for {
		looking := false
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-home.mailbox.Wake():
		case <-a.alarmed():
			looking = home.mailbox.Len() == 0 // news goes first
		}
		if ctx.Err() != nil {
			return ctx.Err() // what waits is for the next incarnation
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

// step handles what has woken the actor.
func (a *actor) step(ctx context.Context, looking bool) error {
	if looking {
		return a.look(ctx)
	}
	return a.turn(ctx)
}

// turn takes everything that waits, steps the machine once per message, and
// ends with at most one fragment per domain.
func (a *actor) turn(ctx context.Context) error {
	entries, stale := a.mailbox.Take(0)
	a.lease.Begin()
	defer a.lease.End()
	if stale {
		a.hydrate()
	}
	for _, e := range entries {
		if intercept := a.directory.config.Intercept; intercept != nil {
			intercept(ctx, a.key, e.Message)
		}
		if _, changed := e.Message.(FactsChanged); changed {
			// Read after Take: what was in force when these were posted, or newer.
			a.machine.SetFacts(a.directory.config.Truth.Facts())
		}
		a.machine.Step(e.Message)
	}
	if a.machine.Stale() {
		a.hydrate()
	}
	if work := a.machine.Conclude(); work != nil {
		a.render(ctx, work)
	}
	a.report()
	return ctx.Err()
}

// report tells what has come into force.
func (a *actor) report() {
	for i, domain := range a.directory.config.Outputs {
		if domain.Programmed == nil {
			continue
		}
		if view, news := a.machine.Programmed(i); news && !a.lease.Fenced() {
			domain.Programmed(view)
		}
	}
}

// hydrate reads the truth.
func (a *actor) hydrate() {
	truth := a.directory.config.Truth
	a.machine.Hydrate(truth.Snapshot(a.key), truth.Facts())
}

// render makes one fragment per domain and hands each over. Whoever was told to
// stop says nothing more: it may not have found out what is held.
func (a *actor) render(ctx context.Context, work *Work) {
	for i := range a.directory.config.Outputs {
		view := a.withDrains(ctx, i, work.View)
		if ctx.Err() != nil || !a.submit(i, view, work.Facts) {
			return
		}
	}
	a.machine.Submitted()
}

// submit renders for one domain and hands the fragment over if it says something
// new. A fenced actor keeps its output to itself, which is when it reports false.
func (a *actor) submit(i int, view *service.View, facts *service.NodeFacts) bool {
	domain := &a.directory.config.Outputs[i]
	var objects []dataplane.Object
	if view == nil {
		objects = domain.Renderer.Node(facts)
	} else {
		objects = domain.Renderer.Service(view, facts)
	}
	fragment := a.machine.Fragment(i, objects)
	if fragment == nil {
		return true
	}
	if a.lease.Fenced() {
		return false
	}
	domain.Submit(fragment)
	return true
}

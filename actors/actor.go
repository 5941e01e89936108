package actors

import (
	"context"
	"sync/atomic"

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

// livedIn tells whether somebody takes from the mailbox; when nobody does, a
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
}

// run is the body of one incarnation.
func (d *Directory) run(ctx context.Context, home *address, lease Lease) error {
	home.tenant.Store(&lease)
	defer home.tenant.CompareAndSwap(&lease, nil)
	a := &actor{address: home, directory: d, lease: lease,
		machine: NewMachine(home.key, lease.Incarnation(), d.names)}
	home.mailbox.MarkStale()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-home.mailbox.Wake():
		}
		if ctx.Err() != nil {
			return ctx.Err() // what waits is for the next incarnation
		}
		if err := a.turn(ctx); err != nil {
			return err
		}
		if a.machine.State() == Retired && d.leave(home) {
			return nil
		}
	}
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
		a.machine.Step(e.Message)
	}
	if a.machine.Stale() {
		a.hydrate()
	}
	if work := a.machine.Conclude(); work != nil {
		a.render(work)
	}
	a.report()
	return ctx.Err()
}

// report tells what has come into force.
func (a *actor) report() {
	for i, domain := range a.directory.config.Domains {
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

// render makes one fragment per domain and hands each over. A fenced actor
// keeps its output to itself.
func (a *actor) render(work *Work) {
	for i, domain := range a.directory.config.Domains {
		var objects []dataplane.Object
		if work.View == nil {
			objects = domain.Renderer.Node(work.Facts)
		} else {
			objects = domain.Renderer.Service(work.View, work.Facts)
		}
		fragment := a.machine.Fragment(i, objects)
		if fragment == nil {
			continue
		}
		if a.lease.Fenced() {
			return
		}
		domain.Submit(fragment)
	}
	a.machine.Submitted()
}

// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"net/netip"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/ipvs/render"
	"github.com/sluice-proxy/sluice/dataplane/ipvs/wire"
	"github.com/sluice-proxy/sluice/service"
)

// edit is the change of one virtual server with its real servers.
type edit struct {
	change *dataplane.Change
	// frontend is the frontend of before and after.
	frontend      service.Frontend
	before, after *render.Server
	come, goes    []wire.Request
	// leaves are the real servers that keep their connections instead of being deleted.
	leaves []netip.AddrPort
	// err is the first rejection.
	err error
	// astray is set when the rejection contradicts before.
	astray bool
}

// changeServers writes virtual servers: additions to all of them, then removals. If the kernel's
// state of one differs from before, it reads that one and writes it again.
func (a *attempt) changeServers(ctx context.Context, changes []*dataplane.Change) {
	if len(changes) == 0 {
		return
	}
	edits := make([]*edit, 0, len(changes))
	for _, c := range changes {
		e, err := a.newEdit(ctx, c)
		if err != nil {
			a.note(c, err)
			continue
		}
		edits = append(edits, e)
	}
	a.round(ctx, edits)
	var again []*edit
	for _, e := range edits {
		if !e.astray {
			continue
		}
		e.astray, e.err = false, nil
		if e.before, e.err = a.ask(ctx, e.frontend); e.err == nil {
			again = append(again, e)
		}
	}
	a.round(ctx, again)
	for _, e := range edits {
		a.settle(ctx, e)
	}
}

// newEdit parses a change. If Before is not sure, it reads the state from the kernel instead.
func (a *attempt) newEdit(ctx context.Context, c *dataplane.Change) (*edit, error) {
	f, err := render.ParseServerID(c.ID)
	if err != nil {
		return nil, err
	}
	e := &edit{change: c, frontend: f}
	a.noteWanted(f, c.After != nil)
	if c.After != nil {
		after, err := render.ParseServer(c.After)
		if err != nil {
			return nil, err
		}
		e.after = &after
	}
	switch {
	case c.Unsure && c.After == nil:
		e.before = &render.Server{Service: wire.Service{Frontend: f}} // removed in any case
	case c.Unsure:
		e.before, err = a.ask(ctx, f)
	case c.Before != nil:
		var before render.Server
		before, err = render.ParseServer(c.Before)
		e.before = &before
	}
	return e, err
}

// round writes edits.
func (a *attempt) round(ctx context.Context, edits []*edit) {
	var comes []pending
	for _, e := range edits {
		e.come, e.goes = diff(e.before, e.after)
		a.leaving.soften(e)
		comes = appendPending(comes, e, e.come)
	}
	a.send(ctx, comes)
	var goes []pending
	for _, e := range edits {
		if e.err == nil { // the additions, which replace them, exist
			goes = appendPending(goes, e, e.goes)
		}
	}
	a.send(ctx, goes)
}

// pending is a request of an edit.
type pending struct {
	wire.Request
	edit *edit
}

func appendPending(all []pending, e *edit, requests []wire.Request) []pending {
	for _, r := range requests {
		all = append(all, pending{r, e})
	}
	return all
}

func (a *attempt) send(ctx context.Context, all []pending) {
	if len(all) == 0 {
		return
	}
	requests := make([]wire.Request, len(all))
	for i, p := range all {
		requests[i] = p.Request
	}
	for i, err := range a.kernel.changes.Do(ctx, requests) {
		e := all[i].edit
		if err == nil || e.err != nil || satisfied(requests[i], err) {
			continue
		}
		e.err, e.astray = err, wire.Exists(err) || wire.Missing(err)
	}
}

// settle notes the outcome of an edit. After an error it reads the virtual server back.
func (a *attempt) settle(ctx context.Context, e *edit) {
	if e.err == nil {
		a.leaving.landed(e, time.Now())
		a.note(e.change, nil)
		return
	}
	f := failure{err: e.err}
	if found, err := a.ask(ctx, e.frontend); err == nil {
		f.known = true
		if found != nil {
			object := found.Object()
			f.found = &object
		}
	}
	a.fail(e.change, f)
}

// ask returns the kernel's virtual server at a frontend, or nil.
func (a *attempt) ask(ctx context.Context, f service.Frontend) (*render.Server, error) {
	found, err := a.kernel.servers.Service(ctx, f)
	if wire.Missing(err) {
		a.leaving.forget(f)
		return nil, nil
	}
	if err != nil {
		return nil, a.asked(err)
	}
	destinations, err := a.kernel.servers.Destinations(ctx, f)
	if err != nil {
		return nil, a.asked(err)
	}
	s := serverOf(found, destinations)
	a.leaving.seen(&s)
	return &s, nil
}

// asked notes if an answer was lost, because the socket then cannot be used any more.
func (a *attempt) asked(err error) error {
	a.lost = a.lost || wire.Unknown(err)
	return err
}

// satisfied reports whether a rejection means that the object is already deleted.
func satisfied(r wire.Request, err error) bool {
	switch r.Verb {
	case wire.DelService:
		return wire.Missing(err)
	case wire.DelReal:
		return wire.MissingReal(err)
	default:
		return false
	}
}

// diff returns the requests that change one virtual server into another one of the same frontend; nil
// means no server. Additions precede removals, and real servers that get new connections precede those
// that stop getting them. A server that has endpoints for new connections before and after therefore
// always has some in between. The scheduler, flags and timeout change in place, and connections stay.
func diff(before, after *render.Server) (come, goes []wire.Request) {
	if after == nil {
		if before == nil {
			return nil, nil
		}
		return nil, []wire.Request{{Verb: wire.DelService, Service: before.Service}}
	}
	about := func(v wire.Verb, r wire.Real) wire.Request {
		return wire.Request{Verb: v, Service: after.Service, Real: r}
	}
	switch {
	case before == nil:
		before = &render.Server{}
		come = append(make([]wire.Request, 0, len(after.Reals)+1), about(wire.NewService, wire.Real{}))
	case before.Service != after.Service:
		come = append(come, about(wire.SetService, wire.Real{}))
	}
	left := make(map[netip.AddrPort]uint32, len(before.Reals))
	for _, r := range before.Reals {
		left[r.Addr] = r.Weight
	}
	var drained []wire.Request // weight 0: after may be a server as read, with leavers of a previous process
	for _, r := range after.Reals {
		weight, there := left[r.Addr]
		delete(left, r.Addr)
		switch {
		case !there:
			come = append(come, about(wire.NewReal, r))
		case weight != r.Weight && r.Weight > 0:
			come = append(come, about(wire.SetReal, r))
		case weight != r.Weight:
			drained = append(drained, about(wire.SetReal, r))
		}
	}
	for _, r := range before.Reals {
		if _, leaves := left[r.Addr]; leaves {
			goes = append(goes, about(wire.DelReal, r))
		}
	}
	return append(come, drained...), goes
}

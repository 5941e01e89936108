package ipvs

import (
	"context"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/ipvs/genl"
)

// edit is the change of one virtual server with its real ones.
type edit struct {
	change *dataplane.Change
	// frontend is that of both.
	frontend      dataplane.Frontend
	before, after *Server
	come, goes    []request
	// err is the first refusal.
	err error
	// astray says that the refusal contradicts before.
	astray bool
}

// changeServers writes virtual servers: what comes with any of them, then what goes.
// Those that turn out to be other than thought are asked for, and written once more.
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

// newEdit reads what a change says. What Before says counts only when it is sure.
func (a *attempt) newEdit(ctx context.Context, c *dataplane.Change) (*edit, error) {
	f, err := ParseServerID(c.ID)
	if err != nil {
		return nil, err
	}
	e := &edit{change: c, frontend: f}
	a.lodge(f, c.After != nil)
	if c.After != nil {
		after, err := ParseServer(c.After)
		if err != nil {
			return nil, err
		}
		e.after = &after
	}
	switch {
	case c.Unsure && c.After == nil:
		e.before = &Server{Service: genl.Service{Frontend: f}} // to be removed in any case
	case c.Unsure:
		e.before, err = a.ask(ctx, f)
	case c.Before != nil:
		var before Server
		before, err = ParseServer(c.Before)
		e.before = &before
	}
	return e, err
}

// round writes edits.
func (a *attempt) round(ctx context.Context, edits []*edit) {
	var comes []pending
	for _, e := range edits {
		e.come, e.goes = diff(e.before, e.after)
		comes = appendPending(comes, e, e.come)
	}
	a.send(ctx, comes)
	var goes []pending
	for _, e := range edits {
		if e.err == nil { // what it leads to instead is there
			goes = appendPending(goes, e, e.goes)
		}
	}
	a.send(ctx, goes)
}

// pending is a request of an edit.
type pending struct {
	request
	edit *edit
}

func appendPending(all []pending, e *edit, requests []request) []pending {
	for _, r := range requests {
		all = append(all, pending{r, e})
	}
	return all
}

func (a *attempt) send(ctx context.Context, all []pending) {
	if len(all) == 0 {
		return
	}
	requests := make([]request, len(all))
	for i, p := range all {
		requests[i] = p.request
	}
	for i, err := range a.kernel.servers.do(ctx, requests) {
		e := all[i].edit
		if err == nil || e.err != nil || all[i].satisfied(err) {
			continue
		}
		e.err, e.astray = err, genl.Exists(err) || genl.Missing(err)
	}
}

// settle takes down what became of an edit; what landed in part is asked for.
func (a *attempt) settle(ctx context.Context, e *edit) {
	if e.err == nil {
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

// ask gives what the kernel has at a frontend, nil for nothing.
func (a *attempt) ask(ctx context.Context, f dataplane.Frontend) (*Server, error) {
	found, err := a.kernel.servers.Service(ctx, f)
	if genl.Missing(err) {
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
	return &s, nil
}

// asked notes that the socket is of no use any more if an answer was lost on it.
func (a *attempt) asked(err error) error {
	a.lost = a.lost || isLost(err)
	return err
}

package userspace

import (
	"context"
	"net/netip"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/listeners"
	"github.com/sluice-proxy/sluice/dataplane/relay"
	"github.com/sluice-proxy/sluice/service"
)

// Guard keeps programs of the host that listen on all addresses from answering at addresses of
// Services. Its elements are what may answer, and where nothing else may: a frontend; a guarded address,
// without a port; a health check port, without an address. One goroutine at a time uses it, but for
// Watch, which may run concurrently.
type Guard interface {
	// Read returns all elements that have an effect.
	Read(ctx context.Context) ([]service.Frontend, error)
	// Add adds elements, addresses last, and Remove removes them, addresses first. What is as wanted
	// already is success. After an error the elements are unknown until the next Read.
	Add([]service.Frontend) error
	Remove([]service.Frontend) error
	// Watch calls changed when another program has changed something, until the context ends.
	Watch(ctx context.Context, changed func()) error
	Close() error
}

// guarded is a guard with what it is known to have. Without a guard everything counts as guarded.
type guarded struct {
	Guard
	known map[service.Frontend]struct{}
}

// The bodies of objects that need a write: one that the guard does not have, and one that nothing but the
// guard has.
const (
	bodyUnguarded = "unguarded\n"
	bodyInVain    = "guarded in vain\n"
)

func inVain(id dataplane.ID) *dataplane.Object {
	if id.Container == containerHealth {
		return &dataplane.Object{ID: id, Kind: dataplane.Element} // the guard is all that has it
	}
	return &dataplane.Object{ID: id, Kind: dataplane.Element, Body: bodyInVain}
}

func (g *guarded) close() error {
	if g.Guard == nil {
		return nil
	}
	return g.Guard.Close()
}

// read asks the guard what it has.
func (g *guarded) read(ctx context.Context) error {
	if g.Guard == nil {
		return nil
	}
	found, err := g.Guard.Read(ctx)
	if err != nil {
		return err
	}
	g.known = make(map[service.Frontend]struct{}, len(found))
	for _, f := range found {
		g.known[f] = struct{}{}
	}
	return nil
}

// ids returns the identities of all elements.
func (g *guarded) ids() map[dataplane.ID]struct{} {
	ids := make(map[dataplane.ID]struct{}, len(g.known))
	for f := range g.known {
		ids[guardedID(f)] = struct{}{}
	}
	return ids
}

// has reports whether the guard has the element of an object.
func (g *guarded) has(id dataplane.ID) bool {
	f, ok := elementOf(id)
	_, known := g.known[f]
	return ok && known
}

// seen returns an object as it is with the guard.
func (g *guarded) seen(o *dataplane.Object) *dataplane.Object {
	if g.Guard == nil || o == nil {
		return o
	}
	if _, ok := elementOf(o.ID); !ok || g.has(o.ID) {
		return o
	}
	return &dataplane.Object{ID: o.ID, Kind: o.Kind, Body: bodyUnguarded}
}

// elementOf returns the element of an object; false for one without.
func elementOf(id dataplane.ID) (f service.Frontend, ok bool) {
	var err error
	switch id.Container {
	case containerListener:
		return Naming{}.Frontend(id)
	case containerAddress:
		f.Addr, err = parseAddress(id)
	case containerHealth:
		f.Port, err = parseHealth(id)
	default:
		return f, false
	}
	return f, err == nil
}

// guardedID returns the identity of the object of an element.
func guardedID(f service.Frontend) dataplane.ID {
	switch {
	case !f.Addr.IsValid():
		return healthObject(f.Port).ID
	case f.Port == 0:
		return addressObject(f.Addr).ID
	default:
		return listeners.ID(relay.Place{Protocol: f.Protocol, At: netip.AddrPortFrom(f.Addr, f.Port)})
	}
}

// protect adds what was opened to the guard, and the wanted addresses. After an error these stay as they are:
// an address without a guard would open ports of the host.
func (a *attempt) protect() error {
	var elements []service.Frontend
	var ids []dataplane.ID
	for i := range a.changes {
		c := &a.changes[i]
		if c.After == nil || a.refused[c.ID] || a.w.guard.has(c.ID) {
			continue
		}
		if c.ID.Container == containerListener && a.w.listeners.Object(c.ID) == nil {
			continue // it could not be opened
		}
		if f, ok := elementOf(c.ID); ok {
			elements, ids = append(elements, f), append(ids, c.ID)
		}
	}
	return a.settle(Guard.Add, elements, ids, func(f service.Frontend) { a.w.guard.known[f] = struct{}{} })
}

// unprotect removes from the guard what has gone.
func (a *attempt) unprotect() error {
	var elements []service.Frontend
	var ids []dataplane.ID
	for i := range a.changes {
		c := &a.changes[i]
		gone := c.After == nil && !a.unsure[c.ID] || a.refused[c.ID]
		if f, ok := elementOf(c.ID); ok && gone && a.w.guard.has(c.ID) {
			elements, ids = append(elements, f), append(ids, c.ID)
		}
	}
	return a.settle(Guard.Remove, elements, ids, func(f service.Frontend) { delete(a.w.guard.known, f) })
}

// settle changes the guard, and notes what it has then.
func (a *attempt) settle(
	change func(Guard, []service.Frontend) error, elements []service.Frontend, ids []dataplane.ID, note func(service.Frontend),
) error {
	if a.w.guard.Guard == nil || len(elements) == 0 {
		return nil
	}
	a.Written.Calls++
	if err := change(a.w.guard.Guard, elements); err != nil {
		for _, id := range ids {
			a.unsure[id] = true
		}
		return err
	}
	for _, f := range elements {
		note(f)
	}
	return nil
}

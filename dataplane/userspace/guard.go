// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"context"
	"net/netip"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/listeners"
	"github.com/sluice-proxy/sluice/dataplane/relay"
	"github.com/sluice-proxy/sluice/service"
)

// Guard prevents host processes that listen on all addresses from answering at Service addresses. Its
// elements are the guarded addresses (without a port), and what may answer there: frontends, and health
// check ports (without an address). Only one goroutine at a time may use it, except for Watch, which may
// run concurrently.
type Guard interface {
	// Read returns all elements that have an effect.
	Read(ctx context.Context) ([]service.Frontend, error)
	// Add adds elements, addresses last, and Remove removes them, addresses first. Adding an existing
	// element, or removing a missing one, succeeds. After an error the elements are unknown until Read.
	Add([]service.Frontend) error
	Remove([]service.Frontend) error
	// Watch calls changed when another process changed an element, until the context ends.
	Watch(ctx context.Context, changed func()) error
	Close() error
}

// guarded is a guard with its known elements. If Guard is nil, everything counts as guarded.
type guarded struct {
	Guard
	known map[service.Frontend]struct{}
}

// The bodies that Read returns for objects that need a write: one that is missing in the guard, and one that
// exists only in the guard.
const (
	bodyUnguarded = "unguarded\n"
	bodyInVain    = "guarded in vain\n"
)

func inVain(id dataplane.ID) *dataplane.Object {
	if id.Container == containerHealth {
		return &dataplane.Object{ID: id, Kind: dataplane.Element} // a health check port exists only in the guard
	}
	return &dataplane.Object{ID: id, Kind: dataplane.Element, Body: bodyInVain}
}

func (g *guarded) close() error {
	if g.Guard == nil {
		return nil
	}
	return g.Guard.Close()
}

// read reads the elements of the guard.
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

// seen returns an object, with the body bodyUnguarded if its element is missing in the guard.
func (g *guarded) seen(o *dataplane.Object) *dataplane.Object {
	if g.Guard == nil || o == nil {
		return o
	}
	if _, ok := elementOf(o.ID); !ok || g.has(o.ID) {
		return o
	}
	return &dataplane.Object{ID: o.ID, Kind: o.Kind, Body: bodyUnguarded}
}

// elementOf returns the guard's element for an object; false if it has none.
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

// guardedID returns the identity of the object that an element of the guard belongs to.
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

// protect adds opened listeners and new addresses to the guard. After an error the addresses are not added to the
// host, because an unguarded address would expose the host's other ports.
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

// unprotect removes the elements of removed or rejected objects from the guard.
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

// settle changes the guard, and updates its known elements.
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

// SPDX-License-Identifier: Apache-2.0

// Package listeners writes the listening sockets of a backend as objects: it opens, changes, removes
// and reads them, and reports dead ones. The backend decides how a listener serves its clients
// ([Listener]). Package relay forwards.
//
// A listener is an element "listener tcp/10.0.0.1:80". The backend defines its body.
package listeners

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/relay"
	"github.com/sluice-proxy/sluice/internal/sleep"
)

// Container is the container of listeners in identities.
const Container = "listener"

// ID returns the identity of the listener at a place.
func ID(p relay.Place) dataplane.ID { return dataplane.ID{Container: Container, Name: p.String()} }

// Place is the reverse of ID.
func Place(id dataplane.ID) (p relay.Place, err error) {
	if id.Container == Container {
		p, err = relay.ParsePlace(id.Name)
	} else {
		err = fmt.Errorf("%q: must be a %s", id.Name, Container)
	}
	if err != nil {
		return p, fmt.Errorf("object %s %w", id.Container, err)
	}
	return p, nil
}

// Listener is an open listener of a backend. C is the type of a parsed body.
type Listener[C any] interface {
	// Alive reports whether the listener serves clients, or will once started.
	Alive() bool
	// Start begins to serve. It calls died after a failure of the socket.
	Start(died func())
	// Change replaces the content.
	Change(C) error
	// Retire closes the socket. The backend decides when open connections end.
	Retire()
}

// Set contains the open listeners of one domain. A [dataplane.Writer] calls its Write, Read and Watch. A backend that
// also writes other objects calls [Set.Begin] instead of Write.
// One goroutine at a time uses a Set, but Watch and Wake may run concurrently.
type Set[C any] struct {
	relay *relay.Relay
	parse func(p relay.Place, body string) (C, error)
	open  func(relay.Place, C) (Listener[C], error)
	// held are all listeners that were opened and not removed. A dead listener stays here until it is
	// written again.
	held map[dataplane.ID]*held[C]
	// woken holds a token while Watch has not reported a change.
	woken chan struct{}
}

// held is a listener with the body that it was written from.
type held[C any] struct {
	Listener[C]
	body string
}

// New returns an empty set. Parse parses a body. Open opens a listener on the relay, which does not
// serve yet.
func New[C any](r *relay.Relay, parse func(p relay.Place, body string) (C, error), open func(relay.Place, C) (Listener[C], error)) *Set[C] {
	return &Set[C]{relay: r, parse: parse, open: open, held: make(map[dataplane.ID]*held[C]), woken: make(chan struct{}, 1)}
}

// IDs returns the identities of the listeners, dead ones included.
func (s *Set[C]) IDs() iter.Seq[dataplane.ID] { return maps.Keys(s.held) }

// Object returns the open listener of an identity as an object, nil if there is none.
func (s *Set[C]) Object(id dataplane.ID) *dataplane.Object {
	l := s.held[id]
	if l == nil || !l.Alive() {
		return nil
	}
	return &dataplane.Object{ID: id, Kind: dataplane.Element, Body: l.body}
}

// Read returns the open listeners, sorted by ID.
func (s *Set[C]) Read(ctx context.Context) (objects []dataplane.Object, err error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	for id := range s.held {
		if o := s.Object(id); o != nil {
			objects = append(objects, *o)
		}
	}
	slices.SortFunc(objects, func(a, b dataplane.Object) int { return a.ID.Compare(b.ID) })
	return objects, nil
}

// healPause is the shortest time between two reports of Watch. It bounds the audits that a repeatedly
// dying listener causes.
const healPause = time.Second

// Watch calls changed after the death of a listener and after Wake, until the context ends.
func (s *Set[C]) Watch(ctx context.Context, changed func(by dataplane.ForeignProcess)) error {
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-s.woken:
			changed(dataplane.ForeignProcess{})
		}
		if !sleep.For(ctx, healPause) {
			return context.Cause(ctx)
		}
	}
}

// Wake makes Watch report a change. It does not block.
func (s *Set[C]) Wake() {
	select {
	case s.woken <- struct{}{}:
	default: // a change is waiting already
	}
}

// Package listeners writes the listening sockets of a backend as objects: it opens, changes and
// removes them, reads them, and has those that died written again. What a listener does with its
// clients is the business of the backend ([Listener]); package relay forwards.
//
// A listener is an element "listener tcp/10.0.0.1:80". What its body means, the backend says.
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
		err = fmt.Errorf("%q: want a %s", id.Name, Container)
	}
	if err != nil {
		return p, fmt.Errorf("object %s %w", id.Container, err)
	}
	return p, nil
}

// Listener is an open listener of a backend, whose bodies it reads as C.
type Listener[C any] interface {
	// Alive reports whether it serves clients, or will once started.
	Alive() bool
	// Start begins to serve, and calls died once it has ended by itself.
	Start(died func())
	// Change gives it another content.
	Change(C) error
	// Retire closes it. What its clients have open goes on for as long as the backend lets it.
	Retire()
}

// Set is the open listeners of one domain. It implements [dataplane.Writer] and
// [dataplane.Watcher]; a backend with other objects makes attempts itself ([Set.Begin]). One
// goroutine at a time uses it, but Watch and Wake may run concurrently.
type Set[C any] struct {
	relay *relay.Relay
	parse func(p relay.Place, body string) (C, error)
	open  func(relay.Place, C) (Listener[C], error)
	// held are the listeners that were opened and not removed. One that has died stays here until it
	// is written again.
	held map[dataplane.ID]*held[C]
	// woken holds a token while Watch has not reported a change.
	woken chan struct{}
}

// held is a listener with what it was written from.
type held[C any] struct {
	Listener[C]
	body string
}

// New returns a set without listeners, whose sockets are those of a relay. Parse reads a body, and
// open opens a listener that does not serve yet.
func New[C any](r *relay.Relay, parse func(p relay.Place, body string) (C, error), open func(relay.Place, C) (Listener[C], error)) *Set[C] {
	return &Set[C]{relay: r, parse: parse, open: open, held: make(map[dataplane.ID]*held[C]), woken: make(chan struct{}, 1)}
}

// IDs returns the identities of the listeners, also of those that have died.
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

// healPause is the shortest time between two reports of Watch, so that a listener which dies again
// and again costs an audit per pause.
const healPause = time.Second

// Watch calls changed when a listener has died by itself, and after Wake, until the context ends.
func (s *Set[C]) Watch(ctx context.Context, changed func(by dataplane.Stranger)) error {
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-s.woken:
			changed(dataplane.Stranger{})
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(healPause):
		}
	}
}

// Wake makes Watch report a change. It does not block.
func (s *Set[C]) Wake() {
	select {
	case s.woken <- struct{}{}:
	default: // the former one is not reported yet
	}
}

// SPDX-License-Identifier: Apache-2.0

// Package actors gives each Service an actor, which owns the state of that Service and
// submits what it needs in each domain. The proxy posts to actors through the Directory.
//
// An actor has a goroutine only while it works: each turn takes all messages that wait in its mailbox, steps the
// machine, and submits the fragments that the machine concludes, one per domain. Then the actor rests until it is
// called. It never waits for a domain: acks are messages, too. Machine is the actor without its goroutine: it takes
// messages and renders. Directory maps keys to mailboxes and asks a supervisor to keep an actor for each.
//
// A message carries the state, never the change, so an older message about the same thing may always be dropped. A
// mailbox that dropped other messages turns stale, and its actor reads a snapshot. Start, restart and overflow take
// that same path.
package actors

import (
	"context"
	"fmt"
	"sync"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/mailbox"
	"github.com/sluice-proxy/sluice/service"
)

// Config configures a Directory.
type Config struct {
	Outputs []Output
	Starter Starter
	State   StateReader
	// Listen receives the events; it must not block. Optional.
	Listen func(Event)
	// Intercept, if set, is called by an actor before each message; the deadline for messages covers the call. The demo
	// and the simulation use it to make actors panic and hang; nothing else sets it.
	Intercept func(ctx context.Context, key service.Key, message Message)
}

// Directory maps keys to mailboxes. Its lock covers the map only, never a call. Start and PostSpec create the address
// of a new key and ask the supervisor for an actor.
//
// Concurrency: every method may be called from anywhere and returns immediately.
// Messages about one object must come from one goroutine, in order.
type Directory struct {
	config Config

	mu        sync.Mutex
	addresses map[service.Key]*address
}

// NewDirectory makes a directory without actors.
func NewDirectory(config Config) (*Directory, error) {
	if config.Starter == nil || config.State == nil || len(config.Outputs) == 0 {
		return nil, fmt.Errorf("directory: a supervisor, a state reader and at least one domain are needed")
	}
	if config.Listen == nil {
		config.Listen = func(Event) {}
	}
	return &Directory{config: config, addresses: map[service.Key]*address{}}, nil
}

// Start starts an actor for each key.
func (d *Directory) Start(keys []service.Key) {
	for _, key := range keys {
		d.ensure(key)
	}
}

// PostSpec posts the present spec of a Service; nil means that the Service is gone.
func (d *Directory) PostSpec(key service.Key, spec *service.Spec, cause Cause) {
	message := SpecChanged{Spec: spec, Cause: cause}
	for !d.post(key, slot{kind: slotSpec}, message) {
		if spec == nil {
			return // no actor, and none needed
		}
		d.ensure(key)
	}
}

// PostSlice posts the present state of one EndpointSlice; nil means that it is gone.
// Without an actor the post is dropped: an actor that starts later reads a snapshot.
func (d *Directory) PostSlice(key service.Key, name string, slice *service.Slice, cause Cause) {
	d.post(key, slot{kind: slotSlice, name: name},
		SliceChanged{Name: name, Slice: slice, Cause: cause})
}

// PostFacts makes every actor read StateReader.Facts, which must already return the new facts. It walks all addresses,
// because the facts are about the whole node. Calls may overlap: each actor reads the facts after the last call.
func (d *Directory) PostFacts() {
	for _, home := range d.list() {
		d.deliver(home, slot{kind: slotFacts}, FactsChanged{})
	}
}

// PostAck posts the result of a fragment.
func (d *Directory) PostAck(ack dataplane.Ack) {
	d.post(ack.Key, slot{kind: slotAck, name: ack.Domain}, Acknowledged{ack})
}

// Len is the number of addresses, the node's own included.
func (d *Directory) Len() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.addresses)
}

func (d *Directory) list() []*address {
	d.mu.Lock()
	defer d.mu.Unlock()
	homes := make([]*address, 0, len(d.addresses))
	for _, home := range d.addresses {
		homes = append(homes, home)
	}
	return homes
}

// post reports whether the message was delivered.
func (d *Directory) post(key service.Key, to slot, message Message) bool {
	d.mu.Lock()
	home := d.addresses[key]
	d.mu.Unlock()
	return home != nil && d.deliver(home, to, message)
}

func (d *Directory) deliver(home *address, to slot, message Message) bool {
	if !home.mailbox.Post(to, message) {
		return false // the actor is retiring and will leave the map in a moment
	}
	// An ack is not new input. If acks nudged, an actor that fails whenever it handles an ack would never stay parked,
	// because each incarnation gets another ack.
	_, answer := message.(Acknowledged)
	if !answer {
		home.news.Store(true) // before the call, so that an actor that vacates the address sees it
	}
	if called := home.call(); !answer && !called {
		d.config.Starter.Nudge(home.key)
	}
	return true
}

// ensure makes sure that there is an open mailbox for a key and that an actor is
// wanted for it.
func (d *Directory) ensure(key service.Key) {
	d.mu.Lock()
	home := d.addresses[key]
	if home != nil && !home.mailbox.Closed() {
		d.mu.Unlock()
		return
	}
	home = &address{key: key, mailbox: mailbox.New[slot](actorSlots, merge)}
	d.addresses[key] = home
	d.mu.Unlock()
	d.config.Starter.Want(key, func(ctx context.Context, lease Lease) (bool, error) {
		return d.run(ctx, home, lease)
	})
}

// leave removes an address unless a message has arrived in the meantime.
func (d *Directory) leave(home *address) bool {
	if !home.mailbox.CloseIfEmpty() {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	// A sender that found the mailbox closed may have put a new address here.
	if d.addresses[home.key] == home {
		delete(d.addresses, home.key)
	}
	return true
}

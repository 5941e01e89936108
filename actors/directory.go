package actors

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/mailbox"
	"github.com/sluice-proxy/sluice/service"
)

// Config is what a Directory is made of.
type Config struct {
	Outputs []Output
	Keeper  Keeper
	Truth   Truth
	// MaxServices bounds the number of actors; further Services are refused,
	// and tried again when one retires. Default 200,000.
	MaxServices int
	// Listen is told what happens; it must not block. Nil listens to nothing.
	Listen func(Event)
	// Intercept, when set, is called by an actor before each message, inside
	// its deadline. The demo and the simulation make actors panic and hang
	// with it; nothing else sets it.
	Intercept func(ctx context.Context, key service.Key, message Message)
}

// Directory maps keys to mailboxes, and is the one lock on the way in; the lock
// guards the map, never a call. It creates an address on first mention and asks
// the keeper to have someone living there.
//
// Concurrency: every method may be called from anywhere and returns at once.
// Messages about one object must come from one goroutine, in order.
type Directory struct {
	config Config
	names  []string

	mu        sync.Mutex
	addresses map[service.Key]*address
	// refused holds the keys for which there was no room.
	refused map[service.Key]struct{}
}

// NewDirectory makes a directory; the node's own actor is wanted from the start.
func NewDirectory(config Config) (*Directory, error) {
	if config.Keeper == nil || config.Truth == nil || len(config.Outputs) == 0 {
		return nil, fmt.Errorf("directory: a keeper, a truth and at least one domain are needed")
	}
	if config.MaxServices == 0 {
		config.MaxServices = 200_000
	}
	if config.MaxServices < 0 {
		return nil, fmt.Errorf("directory: %d services at most: want a positive number", config.MaxServices)
	}
	if config.Listen == nil {
		config.Listen = func(Event) {}
	}
	config.Outputs = slices.Clone(config.Outputs)
	for i := range config.Outputs {
		domain := &config.Outputs[i]
		if domain.DrainDeadline < 0 {
			return nil, fmt.Errorf("directory: domain %q: drain deadline %v: want a positive duration", domain.Name, domain.DrainDeadline)
		}
		if domain.DrainDeadline == 0 {
			domain.DrainDeadline = drainDeadline
		}
	}
	d := &Directory{config: config, addresses: map[service.Key]*address{}, refused: map[service.Key]struct{}{}}
	for _, domain := range config.Outputs {
		d.names = append(d.names, domain.Name)
	}
	return d, nil
}

// Start asks for the node's own actor, which renders the scaffold.
func (d *Directory) Start() { d.settle(service.Node) }

// Invite asks for someone to live at a key, who will read what there is to know.
func (d *Directory) Invite(key service.Key) { d.settle(key) }

// PostSpec tells what a Service is now; nil means that it is gone.
func (d *Directory) PostSpec(key service.Key, spec *service.Spec, cause Cause) {
	message := SpecChanged{Spec: spec, Cause: cause}
	for !d.post(key, slot{kind: slotSpec}, message) {
		if spec == nil {
			d.forgetRefused(key)
			return // nobody lives there, and nobody has to
		}
		if !d.settle(key) {
			return // no room
		}
	}
}

// PostSlice tells what one EndpointSlice is now; nil means that it is gone.
// Without an actor there is nobody to tell: one that comes later reads a
// snapshot.
func (d *Directory) PostSlice(key service.Key, name string, slice *service.Slice, cause Cause) {
	d.post(key, slot{kind: slotSlice, name: name}, SliceChanged{Name: name, Slice: slice, Cause: cause})
}

// PostFacts tells every actor to read Truth.Facts again, which must give the new
// ones by now. It walks all addresses, as a node-wide change must. Calls may
// overlap: whoever is told last reads what is in force last.
func (d *Directory) PostFacts() {
	for _, home := range d.list() {
		d.deliver(home, slot{kind: slotFacts}, FactsChanged{})
	}
}

// PostVerdict gives an actor the answer to its fragment.
func (d *Directory) PostVerdict(v dataplane.Verdict) {
	d.post(v.Key, slot{kind: slotVerdict, name: v.Domain}, VerdictGiven{v})
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

// post reports whether somebody took the message.
func (d *Directory) post(key service.Key, to slot, message Message) bool {
	d.mu.Lock()
	home := d.addresses[key]
	d.mu.Unlock()
	return home != nil && d.deliver(home, to, message)
}

func (d *Directory) deliver(home *address, to slot, message Message) bool {
	if !home.mailbox.Post(to, message) {
		return false // its owner is leaving; the map will say so in a moment
	}
	// A verdict is an answer and no new input: one that dies of it would never be
	// given up, since each of its lives earns the next verdict.
	if _, answer := message.(VerdictGiven); !answer && !home.livedIn() {
		d.config.Keeper.Nudge(home.key)
	}
	return true
}

// settle makes sure that there is an address whose mailbox is open, and that
// someone is wanted there. It reports false when there is no room.
func (d *Directory) settle(key service.Key) bool {
	d.mu.Lock()
	home := d.addresses[key]
	if home != nil && !home.mailbox.Closed() {
		d.mu.Unlock()
		return true
	}
	if home == nil && len(d.addresses) > d.config.MaxServices {
		_, known := d.refused[key]
		d.refused[key] = struct{}{}
		d.mu.Unlock()
		if !known {
			d.config.Listen(Refused{Key: key, MaxServices: d.config.MaxServices})
		}
		return false
	}
	home = &address{key: key, mailbox: mailbox.New[slot](actorSlots, merge)}
	d.addresses[key] = home
	d.mu.Unlock()
	d.config.Keeper.Want(key, func(ctx context.Context, lease Lease) error { return d.run(ctx, home, lease) })
	return true
}

// leave closes an address for good unless something has arrived meanwhile.
func (d *Directory) leave(home *address) bool {
	if !home.mailbox.CloseIfEmpty() {
		return false
	}
	d.mu.Lock()
	// A sender that met the closed mailbox may have put a new address here.
	if d.addresses[home.key] == home {
		delete(d.addresses, home.key)
	}
	var next service.Key
	waiting := false
	for next = range d.refused {
		delete(d.refused, next)
		waiting = true
		break
	}
	d.mu.Unlock()
	if waiting {
		d.settle(next)
	}
	return true
}

// forgetRefused takes note that a Service is gone that may have been refused.
func (d *Directory) forgetRefused(key service.Key) {
	d.mu.Lock()
	_, known := d.refused[key]
	delete(d.refused, key)
	d.mu.Unlock()
	if known {
		d.config.Listen(RefusedGone{Key: key})
	}
}

// SPDX-License-Identifier: Apache-2.0

package conntrack

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane/traffic"
	"github.com/sluice-proxy/sluice/internal/netlink"
	"github.com/sluice-proxy/sluice/service"
)

const (
	// linger is how long a Feed still listens after its last subscription was closed.
	linger = time.Minute
	// waitingMax is the maximum number of pending events of one subscriber. A reading of a full table takes about two
	// seconds.
	waitingMax = 1 << 17
)

// Announcer calls each for every event until it is closed, and lost if events were lost because there were too many. An
// event is valid during the call.
type Announcer interface {
	Run(each func(*TableEvent), lost func()) error
	Close() error
}

// Feed passes the kernel's announcements of connections to all subscribers in the process. It shares one socket between
// them, and closes it a minute after the last subscription was closed. While the socket is open, the kernel makes a
// message for each connection that begins or ends and for each change of its state.
type Feed struct {
	// Owner returns the Service that owns a frontend, or its port as a node port.
	Owner func(service.Family, service.Frontend) (service.Key, bool)
	// Open begins to listen, and Read reads a family's connections. They are Listen and Translated, except in tests.
	Open func() (Announcer, error)
	Read func(context.Context, service.Family, func(Connection)) error

	mu sync.Mutex
	// kernel is nil while the feed does not listen.
	kernel Announcer
	// subscribed is replaced, never changed in place, so that method each can iterate without the lock.
	subscribed []*Subscription
	idle       *time.Timer
	// rest is the earliest time of the next reading of the table.
	rest time.Time
}

// Subscription receives events until it is closed. Use it from one goroutine.
type Subscription struct {
	// C receives a value when there is something to Take.
	C      chan struct{}
	feed   *Feed
	wants  func(service.Key) bool
	socket *netlink.Socket

	mu      sync.Mutex
	waiting []TableEvent
	lost    bool
	err     error
}

// Subscribe begins to collect events of the Services for which wants returns true. The feed's goroutine calls wants.
func (f *Feed) Subscribe(wants func(service.Key) bool) (*Subscription, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.kernel == nil {
		kernel, err := f.Open()
		if err != nil {
			return nil, err
		}
		f.kernel = kernel
		go f.run(kernel)
	}
	if f.idle != nil {
		f.idle.Stop()
	}
	s := &Subscription{C: make(chan struct{}, 1), feed: f, wants: wants}
	f.subscribed = append(slices.Clone(f.subscribed), s)
	return s, nil
}

// Close ends the subscription.
func (s *Subscription) Close() (err error) {
	f := s.feed
	f.mu.Lock()
	defer f.mu.Unlock()
	f.subscribed = slices.DeleteFunc(slices.Clone(f.subscribed), func(other *Subscription) bool { return other == s })
	if len(f.subscribed) == 0 && f.kernel != nil {
		f.idle = time.AfterFunc(linger, f.Rest)
	}
	if s.socket != nil {
		err, s.socket = s.socket.Close(), nil
	}
	return err
}

// Rest closes the socket immediately if there is no subscription.
func (f *Feed) Rest() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.subscribed) == 0 && f.kernel != nil {
		_ = f.kernel.Close() // which ends its goroutine
		f.kernel = nil
	}
}

// run passes announcements to subscribers until the announcer is closed or fails.
func (f *Feed) run(kernel Announcer) {
	err := kernel.Run(f.announce, func() { f.each(func(s *Subscription) { s.lost = true }) })
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.kernel != kernel {
		return // the feed closed it
	}
	err = errors.Join(err, kernel.Close())
	for _, s := range f.subscribed {
		s.change(func() { s.err = err })
	}
	f.kernel, f.subscribed = nil, nil
}

// announce passes an event to the subscriptions that want it. It drops changes to TCP states that no subscriber uses.
func (f *Feed) announce(e *TableEvent) {
	if e.Kind == Changed && !e.Closed() && e.State != "SYN_RECV" {
		return
	}
	key, ok := f.Service(e.Family, e.Tuple())
	if !ok {
		return
	}
	now := time.Now().UTC()
	f.each(func(s *Subscription) {
		switch {
		case !s.wants(key):
		case len(s.waiting) < waitingMax:
			kept := *e
			kept.Key, kept.At, kept.Identity = key, now, slices.Clone(e.Identity)
			s.waiting = append(s.waiting, kept)
		default:
			s.lost = true
		}
	})
}

// each applies a change to every subscription.
func (f *Feed) each(change func(*Subscription)) {
	f.mu.Lock()
	all := f.subscribed
	f.mu.Unlock()
	for _, s := range all {
		s.change(func() { change(s) })
	}
}

// change applies a change, and wakes the subscriber if Take has something. It does not wait for the subscriber.
func (s *Subscription) change(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if change(); len(s.waiting) > 0 || s.lost || s.err != nil {
		select {
		case s.C <- struct{}{}:
		default:
		}
	}
}

// Take returns the waiting events, whether some were lost since the last call, and the error that ended the feed.
func (s *Subscription) Take() (events []TableEvent, lost bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	events, lost, err = s.waiting, s.lost, s.err
	s.waiting, s.lost = nil, false
	return events, lost, err
}

// Read reads the present counters of an event's connection into the event.
func (s *Subscription) Read(ctx context.Context, e *TableEvent) {
	if s.socket == nil {
		var err error
		if s.socket, err = open(nil); err != nil {
			return // the event gets no counters, as if the connection no longer existed
		}
	}
	_ = ask(ctx, s.socket, messageGet, unix.NLM_F_ACK, layouts[e.Family].protocol, e.Identity, func(attrs []byte) error {
		now := parse(attrs)
		e.Accounted, e.Carried = now.Accounted, now.Carried
		return nil
	})
}

// Service returns the Service to which a client connects.
func (f *Feed) Service(family service.Family, of Tuple) (key service.Key, ok bool) {
	frontend, ok := of.Frontend()
	if ok {
		key, ok = f.Owner(family, frontend)
	}
	return key, ok
}

// List calls each with all translated connections of Services. Readings take at most 2 % of the time: List returns
// false if the next reading may not begin yet. Use it from one goroutine.
func (f *Feed) List(ctx context.Context, each func(service.Key, *Connection)) (complete bool, err error) {
	if time.Now().Before(f.rest) {
		return false, nil
	}
	began := time.Now()
	defer func() { f.rest = traffic.RestAfter(began, traffic.ReadingShare) }()
	for _, family := range service.Families {
		err := f.Read(ctx, family, func(c Connection) {
			if key, ok := f.Service(family, c.Tuple()); ok {
				each(key, &c)
			}
		})
		if err != nil {
			return false, err
		}
	}
	return true, nil
}

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
	// linger is how long a Feed listens after the last subscription.
	linger = time.Minute
	// waitingMax bounds the events that wait for one subscriber: a reading of a full table takes about two seconds.
	waitingMax = 1 << 17
)

// Announcer calls each for every event, and lost if events were lost because too many came, until it is closed. An
// event is valid during the call.
type Announcer interface {
	Run(each func(*TableEvent), lost func()) error
	Close() error
}

// Feed gives the kernel's announcements of connections to all parts of the process that want some. It has one socket,
// and none from a minute after the last subscription. While it is open, the kernel makes a message for each connection
// that begins or ends and for each change of its state.
type Feed struct {
	// Owner returns the Service that has a frontend, or its port as a node port.
	Owner func(service.Family, service.Frontend) (service.Key, bool)
	// Open begins to listen, and Read reads the connections of a family: Listen and Translated, but for tests.
	Open func() (Announcer, error)
	Read func(context.Context, service.Family, func(Connection)) error

	mu sync.Mutex
	// kernel is nil while nothing listens.
	kernel Announcer
	// subscribed is replaced when it changes.
	subscribed []*Subscription
	idle       *time.Timer
	// rest is the earliest time of the next reading of the table.
	rest time.Time
}

// Subscription receives events until it is closed. One goroutine uses it.
type Subscription struct {
	// C gets a value when Take has something.
	C      chan struct{}
	feed   *Feed
	wants  func(service.Key) bool
	socket *netlink.Socket

	mu      sync.Mutex
	waiting []TableEvent
	lost    bool
	err     error
}

// Subscribe begins to collect events of the Services that are wanted. Wants is called in the feed's goroutine.
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

// Rest ends listening now if there is no subscription.
func (f *Feed) Rest() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.subscribed) == 0 && f.kernel != nil {
		_ = f.kernel.Close() // which ends its goroutine
		f.kernel = nil
	}
}

// run gives out announcements until the announcer is closed or fails.
func (f *Feed) run(kernel Announcer) {
	err := kernel.Run(f.announce, func() { f.each(func(s *Subscription) { s.lost = true }) })
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.kernel != kernel {
		return // it was closed
	}
	err = errors.Join(err, kernel.Close())
	for _, s := range f.subscribed {
		s.change(func() { s.err = err })
	}
	f.kernel, f.subscribed = nil, nil
}

// announce gives an event to those who want it. The other states of TCP connections matter to none.
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

// each changes what waits for each subscriber.
func (f *Feed) each(change func(*Subscription)) {
	f.mu.Lock()
	all := f.subscribed
	f.mu.Unlock()
	for _, s := range all {
		s.change(func() { change(s) })
	}
}

// change changes what waits, and wakes the subscriber if there is something. It waits for no subscriber.
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

// Take returns the events that wait, whether some were lost since the last call, and why no more will come.
func (s *Subscription) Take() (events []TableEvent, lost bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	events, lost, err = s.waiting, s.lost, s.err
	s.waiting, s.lost = nil, false
	return events, lost, err
}

// Read asks the kernel for the counters of an event's connection as they are now.
func (s *Subscription) Read(ctx context.Context, e *TableEvent) {
	if s.socket == nil {
		var err error
		if s.socket, err = open(nil); err != nil {
			return // the connection has no counters then, as if it were gone
		}
	}
	_ = ask(ctx, s.socket, messageGet, unix.NLM_F_ACK, layouts[e.Family].protocol, e.Identity, func(attrs []byte) error {
		now := parse(attrs)
		e.Accounted, e.Carried = now.Accounted, now.Carried
		return nil
	})
}

// Service returns the one that a connection asks for.
func (f *Feed) Service(family service.Family, of Tuple) (key service.Key, ok bool) {
	frontend, ok := of.Frontend()
	if ok {
		key, ok = f.Owner(family, frontend)
	}
	return key, ok
}

// List calls each with all translated connections of Services. Readings take at most 2 % of the time: it returns false
// if the next one may not begin yet. One goroutine uses it.
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

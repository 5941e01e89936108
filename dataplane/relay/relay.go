// SPDX-License-Identifier: Apache-2.0

// Package relay forwards TCP connections and UDP sessions from listening sockets to targets that a
// [Balancer] chooses. It owns the sockets and the goroutines of a [Relay]. Packages localport and
// userspace decide on which addresses it listens.
package relay

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/supervisor"
)

// Config tunes a Relay. Zero values mean the defaults.
type Config struct {
	// Connections limits the TCP connections of all listeners together, and
	// ConnectionsPerListener those of one; the relay resets further clients. The last tenth is for
	// listeners with fewer than 16 connections. Each connection takes up to six file descriptors:
	// two sockets and two pipes to splice through. Defaults 1024 and 512. If a Balancer has a
	// Budget, its clients count only against that.
	Connections, ConnectionsPerListener int
	// Sessions limits the UDP sessions of all listeners together, and SessionsPerListener those
	// of one. At the limit of its listener, a new session replaces that listener's least recently
	// active one; at the limit of all listeners, that of the listener with the most sessions. Each
	// takes a file descriptor. Defaults 4096 and 1024.
	Sessions, SessionsPerListener int
	// DialTimeout limits how long the relay waits for a target to accept a TCP connection, over all
	// targets that it tries; then it resets the client. Default 10 s: the fourth SYN is sent after 7 s.
	DialTimeout time.Duration
	// Replied is how long a UDP session lives without traffic if it has had an answer and was
	// active for more than two seconds, Unreplied how long any other one does. Defaults 120 s and
	// 30 s, conntrack's nf_conntrack_udp_timeout_stream and …_udp_timeout.
	Unreplied, Replied time.Duration
	// MayDial is called before each connection to a target. If it returns an error, the relay does not
	// connect, and reports the target as failed, with a *DeniedError. It must not block. Default:
	// every target may be dialed.
	MayDial func(target netip.Addr) error
	// Places are shared by all relays of the host. Default: those of this relay alone.
	Places *Places
	// Inside runs a function on a thread in the network namespace to open sockets in. Default:
	// the process's own namespace.
	Inside func(func() error) error
	// Sockets are those of the previous owner, to use instead of opening new ones. Default: none.
	Sockets *Sockets
	// Report is called, from any goroutine, with failures that occur outside a write, so that no
	// receipt has them. It must not block. Default: none.
	Report func(Failure)
}

func (c Config) withDefaults() Config {
	c.Connections = cmp.Or(c.Connections, 1024)
	c.ConnectionsPerListener = cmp.Or(c.ConnectionsPerListener, 512)
	c.Sessions = cmp.Or(c.Sessions, 4096)
	c.SessionsPerListener = cmp.Or(c.SessionsPerListener, 1024)
	c.DialTimeout = cmp.Or(c.DialTimeout, 10*time.Second)
	c.Unreplied = cmp.Or(c.Unreplied, 30*time.Second)
	c.Replied = cmp.Or(c.Replied, 120*time.Second)
	if c.Inside == nil {
		c.Inside = func(f func() error) error { return f() }
	}
	if c.MayDial == nil {
		c.MayDial = func(netip.Addr) error { return nil }
	}
	if c.Places == nil {
		c.Places = &Places{}
	}
	if c.Report == nil {
		c.Report = func(Failure) {}
	}
	return c
}

// Place is where a listener listens.
type Place struct {
	// Protocol is TCP or UDP.
	Protocol service.Protocol
	At       netip.AddrPort
}

// String returns, for example, "tcp/127.0.0.1:30080".
func (p Place) String() string { return p.Protocol.String() + "/" + p.At.String() }

// Failure is something that went wrong while forwarding.
type Failure struct {
	// Listener is the name of the listener, for example "tcp/127.0.0.1:30080".
	Listener string
	// Err is a *supervisor.PanicError if forwarding panicked.
	Err error
}

// Relay forwards connections and sessions for all listeners of one owner. Any goroutine may use it.
type Relay struct {
	*sockets
	tasks *tasks
	stats Stats
	// connections and sessions are for balancers without a budget.
	connections, sessions *Pool
	unreplied, replied    time.Duration
	places                *Places
	// listeners are the open ones, as keys.
	listeners sync.Map
}

// New returns a relay, which runs until Close.
func New(c Config) *Relay {
	c = c.withDefaults()
	s := &Relay{
		sockets:     &sockets{inside: c.Inside, dialTimeout: c.DialTimeout, waiting: c.Sockets, mayDial: c.MayDial},
		connections: NewPool(Limits{Total: c.Connections, PerBudget: c.ConnectionsPerListener}),
		sessions:    NewPool(Limits{Total: c.Sessions, PerBudget: c.SessionsPerListener}),
		unreplied:   c.Unreplied, replied: c.Replied, places: c.Places,
	}
	s.tasks = newTasks(func(f Failure) {
		s.stats.Failures.Add(1)
		c.Report(f)
	})
	return s
}

// Close ends all listeners, connections and sessions and waits for their end. After it, nothing can
// be opened.
func (r *Relay) Close() { r.tasks.close() }

// Go does work in a goroutine that Close waits for. After Close it does nothing.
func (r *Relay) Go(listener string, work func()) {
	r.tasks.run(listener, func() error { work(); return nil }, func(error) {})
}

// Closed reports whether Close was called.
func (r *Relay) Closed() bool { return r.tasks.ctx.Err() != nil }

// Stats returns the relay's numbers.
func (r *Relay) Stats() *Stats { return &r.stats }

// Inside runs a function on a thread in the relay's network namespace.
func (r *Relay) Inside(f func() error) error { return r.inside(f) }

// tasks are the goroutines of a relay. close waits for each of them, and a panic ends only the one
// in which it happened.
//
// The lock guards ending and the start of a wait, never a call.
type tasks struct {
	// ctx ends with close.
	ctx     context.Context
	cancel  context.CancelFunc
	report  func(Failure)
	running sync.WaitGroup

	mu     sync.Mutex
	ending bool
}

func newTasks(report func(Failure)) *tasks {
	ctx, cancel := context.WithCancel(context.Background())
	return &tasks{ctx: ctx, cancel: cancel, report: report}
}

// run does work for a listener in a goroutine, reports its error if it has one, and calls ended
// with it. After close it does nothing and reports false.
func (t *tasks) run(listener string, work func() error, ended func(error)) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ending {
		return false
	}
	t.running.Go(func() {
		err := supervisor.Guarded(work)
		if err != nil {
			t.report(Failure{Listener: listener, Err: err})
		}
		ended(err)
	})
	return true
}

// ErrClosed means that the relay is closed.
var ErrClosed = errors.New("the relay is closed")

// close ends all goroutines and waits for their end.
func (t *tasks) close() {
	t.mu.Lock()
	t.ending = true
	t.mu.Unlock()
	t.cancel()
	t.running.Wait()
}

// atEnd calls f in a separate goroutine when the context ends. release, which is called once,
// prevents that or waits until f has returned.
func atEnd(ctx context.Context, f func()) (release func()) {
	returned := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(returned)
		f()
	})
	return func() {
		if !stop() {
			<-returned
		}
	}
}

// Stats are the numbers of a relay. Any goroutine may read them.
type Stats struct {
	// Listeners, Connections (TCP) and Sessions (UDP) are open now.
	Listeners, Connections, Sessions atomic.Int64
	// Unanswered are the sessions in which fewer datagrams came from the target than went to it.
	Unanswered atomic.Int64

	// The others count from the relay's start.

	// ConnectionsAccepted counts all connections; ConnectionsRefused those reset because of a
	// limit, and datagrams for which there was no slot for a session; ConnectionsUnreachable
	// those reset because no target accepted.
	ConnectionsAccepted, ConnectionsRefused, ConnectionsUnreachable atomic.Uint64
	// ConnectionsRetried counts targets that did not accept while there was another one to try.
	ConnectionsRetried atomic.Uint64
	// SessionsOpened counts all sessions, SessionsEvicted those that were replaced at a limit,
	// SessionsRefused those that the target or the network refused (ICMP).
	SessionsOpened, SessionsEvicted, SessionsRefused atomic.Uint64
	// DatagramsDropped counts datagrams that could not be passed on.
	DatagramsDropped atomic.Uint64
	Bytes
	// Connects are the times that targets took to accept a TCP connection.
	Connects Latencies
	// Failures counts calls of Config.Report.
	Failures atomic.Uint64
}

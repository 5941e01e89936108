// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/internal/sleep"
	"github.com/sluice-proxy/sluice/service"
)

// Listener is one open socket and, once started, the goroutine that serves it. Its owner opens,
// starts and closes it; any goroutine may call Alive.
type Listener struct {
	place  Place
	relay  *Relay
	server server
	// alive is set until the server has ended for any reason.
	alive   atomic.Bool
	stop    context.CancelFunc
	closing sync.Once
}

// server takes clients from one socket.
type server interface {
	// serve returns when the socket is closed or fails: nil once the context has ended, otherwise
	// the error.
	serve(ctx context.Context) error
	// Close closes the socket. It is called once.
	io.Closer
	// use replaces the balancer.
	use(Balancer)
	// control calls a function with the socket.
	control(func(fd uintptr)) error
}

// Options configure one listener.
type Options struct {
	Balancer Balancer
	// Control, if set, prepares the socket before it is bound.
	Control func(fd uintptr) error
}

// Open opens a socket. Clients can connect to it from then on, but nothing serves them before
// Start.
func (r *Relay) Open(p Place, o Options) (*Listener, error) {
	l := &Listener{place: p, relay: r, stop: func() {}}
	var err error
	if p.Protocol == service.UDP {
		l.server, err = newUDPServer(r, p, o)
	} else {
		l.server, err = newTCPServer(r, p, o)
	}
	if err != nil {
		return nil, err
	}
	l.alive.Store(true)
	r.listeners.Store(l, nil)
	r.places.add(l)
	return l, nil
}

// Place returns where it listens.
func (l *Listener) Place() Place { return l.place }

// Alive reports whether the listener serves clients, or will do so once started.
func (l *Listener) Alive() bool { return l.alive.Load() }

// Use replaces the balancer. Open connections report their end to the previous one. The new one decides
// which sessions stay.
func (l *Listener) Use(b Balancer) { l.server.use(b) }

// Control calls a function with the socket of a listener that is alive.
func (l *Listener) Control(f func(fd uintptr)) error { return l.server.control(f) }

// Start serves until Close, the end of the relay, or a failure. It calls died after a failure.
func (l *Listener) Start(died func()) {
	s := l.relay
	ctx, stop := context.WithCancel(s.tasks.ctx)
	l.stop = stop
	s.stats.Listeners.Add(1)
	serve := func() error {
		release := atEnd(ctx, l.closeSocket)
		defer release()
		return l.server.serve(ctx)
	}
	ended := func(failure error) {
		l.Close()
		l.alive.Store(false) // from here on it may be opened again
		s.stats.Listeners.Add(-1)
		if failure != nil {
			died()
		}
	}
	if !s.tasks.run(l.place.String(), serve, ended) {
		ended(nil)
	}
}

// Close ends the listener. When it returns, the host refuses new clients. It does not wait for the
// goroutine. Connections go on; sessions end.
func (l *Listener) Close() {
	l.stop()
	l.closeSocket()
}

// closeSocket returns when the socket is closed, by this call or another.
func (l *Listener) closeSocket() {
	l.closing.Do(func() {
		l.relay.listeners.Delete(l)
		l.relay.places.remove(l)
		_ = l.server.Close() // everything received has been passed on
	})
}

// passing are temporary errors of accepting a client: the socket itself still works (accept(2)),
// so the server tries again.
var passing = []error{
	unix.EMFILE, unix.ENFILE, unix.ENOBUFS, unix.ENOMEM, unix.ECONNABORTED, unix.EPERM, unix.EPROTO, unix.EINTR,
}

// exhausted errors mean that the host has no more descriptors or buffers.
var exhausted = []error{unix.EMFILE, unix.ENFILE, unix.ENOBUFS, unix.ENOMEM, unix.EAGAIN, unix.EINTR}

// Exhausted reports whether an error means that the host has no more descriptors or buffers
// for any socket.
func Exhausted(err error) bool { return isOneOf(err, exhausted) }

func isOneOf(err error, kinds []error) bool {
	return slices.ContainsFunc(kinds, func(kind error) bool { return errors.Is(err, kind) })
}

// Limits of the pause after a passing error, which doubles each time.
const (
	pauseMin = 5 * time.Millisecond
	pauseMax = time.Second
)

// backoff paces retries after passing errors. The zero value is ready.
type backoff struct{ pause time.Duration }

// reset records a success.
func (b *backoff) reset() { b.pause = 0 }

// tolerate waits if an error is a passing one, and reports whether to go on. Otherwise it returns
// the error, or nil if the context has ended.
func (b *backoff) tolerate(ctx context.Context, err error) (goOn bool, failure error) {
	switch {
	case ctx.Err() != nil:
		return false, nil
	case !isOneOf(err, passing) || errors.Is(err, net.ErrClosed):
		return false, err
	}
	b.pause = min(max(2*b.pause, pauseMin), pauseMax)
	return sleep.For(ctx, b.pause), nil
}

// sockets opens sockets in the network namespace of the relay. A socket, and those accepted from
// it, stay in the namespace that it was opened in, wherever they are used.
type sockets struct {
	inside      func(func() error) error
	dialTimeout time.Duration
	mayDial     func(netip.Addr) error
	// waiting are the sockets of the previous owner; nil for none.
	waiting *Sockets
}

// keepAlive finds peers that have vanished, after about two minutes.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: time.Minute, Interval: 15 * time.Second, Count: 4}

// network returns the name of a protocol in one family. For a name with IPv6, package net sets
// IPV6_V6ONLY.
func network(protocol service.Protocol, addr netip.Addr) string {
	if addr.Is4() {
		return protocol.String() + "4"
	}
	return protocol.String() + "6"
}

// listenTCP opens a listener of plain TCP: Multipath TCP has no use on the loopback interface.
func (s *sockets) listenTCP(at netip.AddrPort, o Options) (*net.TCPListener, error) {
	if l, ok := inherit[*net.TCPListener](s, Place{service.TCP, at}, o, net.FileListener); ok {
		return l, nil
	}
	config := net.ListenConfig{KeepAliveConfig: keepAlive, Control: o.control()}
	config.SetMultipathTCP(false)
	return open(s, func() (*net.TCPListener, error) {
		l, err := config.Listen(context.Background(), network(service.TCP, at.Addr()), at.String())
		if err != nil {
			return nil, err
		}
		return l.(*net.TCPListener), nil // a listener of a tcp network always is one
	})
}

// listenUDP opens a socket that accepts datagrams from any client.
func (s *sockets) listenUDP(at netip.AddrPort, o Options) (*net.UDPConn, error) {
	if c, ok := inherit[*net.UDPConn](s, Place{service.UDP, at}, o, net.FilePacketConn); ok {
		return c, nil
	}
	config := net.ListenConfig{Control: o.control()}
	return open(s, func() (*net.UDPConn, error) {
		c, err := config.ListenPacket(context.Background(), network(service.UDP, at.Addr()), at.String())
		if err != nil {
			return nil, err
		}
		return c.(*net.UDPConn), nil // a socket of a udp network always is one
	})
}

// control returns the function that package net calls before it binds a socket.
func (o Options) control() func(network, address string, c syscall.RawConn) error {
	if o.Control == nil {
		return nil
	}
	return func(_, _ string, c syscall.RawConn) error {
		var failed error
		err := c.Control(func(fd uintptr) { failed = o.Control(fd) })
		return errors.Join(err, failed)
	}
}

// dialTCP connects. It blocks for the timeout at most.
func (s *sockets) dialTCP(ctx context.Context, target netip.AddrPort, timeout time.Duration) (*net.TCPConn, error) {
	if err := s.check(target); err != nil {
		return nil, err
	}
	dialer := net.Dialer{Timeout: timeout, KeepAliveConfig: keepAlive}
	dialer.SetMultipathTCP(false)
	return open(s, func() (*net.TCPConn, error) {
		c, err := dialer.DialContext(ctx, network(service.TCP, target.Addr()), target.String())
		if err != nil {
			return nil, err
		}
		return c.(*net.TCPConn), nil // a connection of a tcp network always is one
	})
}

// dialUDP opens a socket that is connected to the target. It sends nothing.
func (s *sockets) dialUDP(target netip.AddrPort) (*net.UDPConn, error) {
	if err := s.check(target); err != nil {
		return nil, err
	}
	return open(s, func() (*net.UDPConn, error) {
		return net.DialUDP(network(service.UDP, target.Addr()), nil, net.UDPAddrFromAddrPort(target))
	})
}

// open calls f in the namespace.
func open[T any](s *sockets, f func() (T, error)) (socket T, err error) {
	err = s.inside(func() error {
		var err error
		socket, err = f()
		return err
	})
	return socket, err
}

// Probe returns an error if listening on an address, over TCP or UDP, fails. The function inside is
// as in Config.
func Probe(addr netip.Addr, inside func(func() error) error) error {
	s := &sockets{inside: Config{Inside: inside}.withDefaults().Inside}
	at := netip.AddrPortFrom(addr, 0)
	tcp, err := s.listenTCP(at, Options{})
	if err != nil {
		return err
	}
	udp, err := s.listenUDP(at, Options{})
	if err == nil {
		err = udp.Close()
	}
	return errors.Join(err, tcp.Close())
}

package localport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/service"
)

// listener is one open socket on the loopback address and, once started, the goroutine that serves
// it. The writer owns it; the server reads target and clears alive.
type listener struct {
	place  place
	target atomic.Pointer[netip.AddrPort]
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
}

// openListener opens a socket. Clients can connect to it from then on, but nothing serves them
// before start.
func openListener(s *shared, p place, target netip.AddrPort) (*listener, error) {
	l := &listener{place: p, stop: func() {}}
	l.target.Store(&target)
	var err error
	if p.protocol == service.UDP {
		l.server, err = newUDPServer(s, p, &l.target)
	} else {
		l.server, err = newTCPServer(s, p, &l.target)
	}
	if err != nil {
		return nil, err
	}
	l.alive.Store(true)
	return l, nil
}

// start serves until close, the end of the tasks, or a failure. It calls died after a failure.
func (l *listener) start(s *shared, died func()) {
	ctx, stop := context.WithCancel(s.tasks.ctx)
	l.stop = stop
	s.stats.Listeners.Add(1)
	serve := func() error {
		release := atEnd(ctx, l.closeSocket)
		defer release()
		return l.server.serve(ctx)
	}
	ended := func(failure error) {
		l.close()
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

// close ends the listener. When it returns, the host refuses new clients. It does not wait for the
// goroutine.
func (l *listener) close() {
	l.stop()
	l.closeSocket()
}

// closeSocket returns when the socket is closed, by this call or another.
func (l *listener) closeSocket() {
	l.closing.Do(func() { _ = l.server.Close() }) // what was received has been passed on
}

// passing errors of accepting a client may be over soon: nothing is wrong with the socket
// (accept(2)).
var passing = []error{
	unix.EMFILE, unix.ENFILE, unix.ENOBUFS, unix.ENOMEM, unix.ECONNABORTED, unix.EPERM, unix.EPROTO, unix.EINTR,
}

// Bounds of the pause after a passing error, which doubles each time.
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
	select {
	case <-ctx.Done():
		return false, nil
	case <-time.After(b.pause):
		return true, nil
	}
}

// sockets opens sockets in the network namespace of the writer. A socket, and those accepted from
// it, stay in the namespace that it was opened in, wherever they are used.
type sockets struct {
	inside      func(func() error) error
	dialTimeout time.Duration
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
func (s *sockets) listenTCP(at netip.AddrPort) (*net.TCPListener, error) {
	config := net.ListenConfig{KeepAliveConfig: keepAlive}
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
func (s *sockets) listenUDP(at netip.AddrPort) (*net.UDPConn, error) {
	return open(s, func() (*net.UDPConn, error) {
		return net.ListenUDP(network(service.UDP, at.Addr()), net.UDPAddrFromAddrPort(at))
	})
}

// dialTCP connects. It blocks for dialTimeout at most.
func (s *sockets) dialTCP(ctx context.Context, target netip.AddrPort) (*net.TCPConn, error) {
	dialer := net.Dialer{Timeout: s.dialTimeout, KeepAliveConfig: keepAlive}
	dialer.SetMultipathTCP(false)
	return open(s, func() (*net.TCPConn, error) {
		c, err := dialer.DialContext(ctx, network(service.TCP, target.Addr()), target.String())
		if err != nil {
			return nil, err
		}
		return c.(*net.TCPConn), nil // a connection of a tcp network always is one
	})
}

// dialUDP opens a socket that talks to the target alone. It sends nothing.
func (s *sockets) dialUDP(target netip.AddrPort) (*net.UDPConn, error) {
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

// Probe returns an error if listening on a family's loopback address fails; a host without IPv6 has
// no ::1. The function inside is that of Config; nil means the process's own namespace.
func Probe(family service.Family, inside func(func() error) error) error {
	if inside == nil {
		inside = here
	}
	s := &sockets{inside: inside}
	at := netip.AddrPortFrom(loopback[family], 0)
	tcp, err := s.listenTCP(at)
	if err == nil {
		var udp *net.UDPConn
		if udp, err = s.listenUDP(at); err == nil {
			err = udp.Close()
		}
		err = errors.Join(err, tcp.Close())
	}
	if err != nil {
		return fmt.Errorf("node ports on %s: %w", loopback[family], err)
	}
	return nil
}

package localport

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// listener is one open socket on the loopback address, and, once started, the
// goroutine that serves it. The writer owns it; the server reads target and
// clears alive.
type listener struct {
	place  place
	target atomic.Pointer[netip.AddrPort]
	server server
	// alive is set until the server has ended, for whatever reason.
	alive   atomic.Bool
	stop    context.CancelFunc
	closing sync.Once
}

// server takes clients from one socket.
type server interface {
	// serve returns when the socket is closed or can no longer be used: nil once
	// the context has ended, otherwise what is wrong.
	serve(ctx context.Context) error
	// Close closes the socket. It is called once.
	io.Closer
}

// openListener opens a socket, which clients can connect to from then on, but
// serves nobody before start.
func openListener(h *household, p place, target netip.AddrPort) (*listener, error) {
	l := &listener{place: p, stop: func() {}}
	l.target.Store(&target)
	var err error
	if p.protocol == service.UDP {
		l.server, err = newUDPServer(h, p, &l.target)
	} else {
		l.server, err = newTCPServer(h, p, &l.target)
	}
	if err != nil {
		return nil, err
	}
	l.alive.Store(true)
	return l, nil
}

// start serves until close, the end of the crew, or a failure; died is called
// after a failure.
func (l *listener) start(h *household, died func()) {
	ctx, stop := context.WithCancel(h.crew.ctx)
	l.stop = stop
	h.counters.listeners.Add(1)
	serve := func() error {
		release := atEnd(ctx, l.closeSocket)
		defer release()
		return l.server.serve(ctx)
	}
	ended := func(failure error) {
		l.close()
		l.alive.Store(false) // from here on it may be opened anew
		h.counters.listeners.Add(-1)
		if failure != nil {
			died()
		}
	}
	if !h.crew.run(l.place.String(), serve, ended) {
		ended(nil)
	}
}

// close ends the listener; new clients are refused when it returns. It does not
// wait for the goroutine.
func (l *listener) close() {
	l.stop()
	l.closeSocket()
}

// closeSocket returns when the socket is closed, whoever closes it.
func (l *listener) closeSocket() {
	l.closing.Do(func() { _ = l.server.Close() }) // what was heard was passed on
}

// object gives what the listener is.
func (l *listener) object() *dataplane.Object {
	o := object(l.place, *l.target.Load())
	return &o
}

// passing errors of taking a client may be over soon: nothing is wrong with the
// socket (accept(2)).
var passing = []error{unix.EMFILE, unix.ENFILE, unix.ENOBUFS, unix.ENOMEM, unix.ECONNABORTED, unix.EPERM, unix.EPROTO, unix.EINTR}

// Bounds of the pause after a passing error, which doubles each time.
const (
	pauseMin = 5 * time.Millisecond
	pauseMax = time.Second
)

// backoff paces tries after passing errors. The zero value is ready.
type backoff struct{ pause time.Duration }

// reset says that a try went well.
func (b *backoff) reset() { b.pause = 0 }

// tolerate waits if an error is a passing one, and tells whether to go on. It
// gives nil to return when the context has ended, otherwise the error.
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

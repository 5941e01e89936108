// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// acceptor is the part of *net.TCPListener that a TCP server needs.
type acceptor interface {
	AcceptTCP() (*net.TCPConn, error)
	SyscallConn() (syscall.RawConn, error)
	Close() error
}

// tcpServer accepts TCP connections from one socket. Separate goroutines forward them and
// outlive it.
type tcpServer struct {
	*Relay
	place  Place
	name   string
	socket acceptor
	*choice
}

func newTCPServer(s *Relay, p Place, o Options) (*tcpServer, error) {
	socket, err := s.listenTCP(p.At, o)
	if err != nil {
		return nil, err
	}
	return &tcpServer{
		Relay: s, place: p, name: p.String(), socket: socket, choice: newChoice(o.Balancer, s.connections),
	}, nil
}

// Close closes the socket; connections go on.
func (s *tcpServer) Close() error { return s.socket.Close() }

func (s *tcpServer) control(f func(fd uintptr)) error { return controlled(s.socket, f) }

// controlled calls a function with the descriptor of a socket.
func controlled(socket syscall.Conn, f func(fd uintptr)) error {
	raw, err := socket.SyscallConn()
	if err != nil {
		return err
	}
	return raw.Control(f)
}

// serve accepts until the socket is closed.
func (s *tcpServer) serve(ctx context.Context) error {
	var pace backoff
	for {
		client, err := s.socket.AcceptTCP()
		if err == nil {
			pace.reset()
			s.admit(client)
			continue
		}
		if goOn, failure := pace.tolerate(ctx, err); !goOn {
			return failure
		}
	}
}

// admit starts forwarding a connection. Beyond a limit it resets the connection, so that the client
// fails immediately instead of waiting.
func (s *tcpServer) admit(client *net.TCPConn) {
	s.stats.ConnectionsAccepted.Add(1)
	slot, from := &Slot{}, addrOf(client.RemoteAddr())
	if why, ok := s.budget().Acquire(slot, from.Addr()); !ok {
		s.stats.ConnectionsRefused.Add(1)
		s.balancer().Refused(from, s.place.At, why)
		reset(client)
		return
	}
	s.stats.Connections.Add(1)
	leave := func(failure error) {
		if failure != nil {
			reset(client)
		}
		s.stats.Connections.Add(-1)
		slot.Release()
	}
	if !s.tasks.run(s.name, func() error { s.forward(client); return nil }, leave) {
		leave(ErrClosed)
	}
}

// forward connects to a target and copies until both directions have ended. If no target answers, it
// resets the client, because a normal end of the stream would look like an empty answer.
func (s *tcpServer) forward(client *net.TCPConn) {
	from, at := addrOf(client.RemoteAddr()), addrOf(client.LocalAddr())
	upstream, target := s.connect(from, at)
	if upstream == nil {
		s.stats.ConnectionsUnreachable.Add(1)
		reset(client)
		return
	}
	c := &connection{client: client, upstream: upstream, Connection: Connection{
		Place: s.place, Client: from, Target: target, Began: time.Now(), stats: &s.stats.Bytes,
	}}
	c.Cut = c.abort
	ended := s.balancer().Connected(&c.Connection)
	defer ended()
	c.pump(s.Relay, s.name)
}

// addrOf returns the address of one end of a TCP connection.
func addrOf(end net.Addr) netip.AddrPort {
	tcp, _ := end.(*net.TCPAddr) // it always is one
	at := tcp.AddrPort()
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
}

// connect tries the targets of a client one after the other; the connection is nil if none accepts.
// Each target gets an equal part of the dial timeout.
func (s *tcpServer) connect(client, at netip.AddrPort) (*net.TCPConn, netip.AddrPort) {
	targets := s.balancer().Targets(client)
	if len(targets) == 0 {
		s.balancer().Refused(client, s.place.At, NoTarget)
		return nil, netip.AddrPort{}
	}
	preface := s.balancer().Preface(client, at)
	for i, target := range targets {
		began := time.Now()
		upstream, err := s.dialTCP(s.tasks.ctx, target, s.dialTimeout/time.Duration(len(targets)))
		if err == nil {
			s.stats.Connects.observe(time.Since(began))
			if err = begin(upstream, preface); err == nil {
				return upstream, target
			}
		}
		if s.tasks.ctx.Err() != nil {
			return nil, target
		}
		again := i < len(targets)-1
		if again {
			s.stats.ConnectionsRetried.Add(1)
		}
		if !Exhausted(err) {
			s.balancer().Failed(target, err, again)
		}
	}
	s.balancer().Refused(client, s.place.At, Unreachable)
	return nil, netip.AddrPort{}
}

// begin sends the preface, which precedes the client's bytes, to a target. It does not block, because
// the preface fits into the send buffer of a new connection.
func begin(upstream *net.TCPConn, preface []byte) error {
	if len(preface) == 0 {
		return nil
	}
	_, err := upstream.Write(preface)
	if err != nil {
		reset(upstream)
	}
	return err
}

// connection is a client's TCP connection and the one to the target.
type connection struct {
	Connection
	client, upstream *net.TCPConn
}

// pump copies in both directions until both have ended, one of them has failed, or the tasks end.
// It blocks.
func (c *connection) pump(s *Relay, name string) {
	defer c.close()
	release := atEnd(s.tasks.ctx, c.abort)
	defer release()
	other := make(chan struct{})
	requests := func() error {
		c.half(c.upstream, c.client, c.toTarget)
		return nil
	}
	if !s.tasks.run(name, requests, func(error) { close(other) }) {
		c.abort()
		return
	}
	defer func() { <-other }()
	c.half(c.client, c.upstream, c.toClient)
}

// half copies one direction until its end, and then closes it at the receiver; the other direction may
// continue. If half fails or panics, both end.
func (c *connection) half(to, from *net.TCPConn, passed func(int)) {
	whole := false
	defer func() {
		if !whole {
			c.abort()
		}
	}()
	whole = passOn(to, from, passed) == nil && to.CloseWrite() == nil
}

// smallBytes is the size of a buffer. Up to this size, copying is faster than splicing through a pipe.
const smallBytes = 16 << 10

// smalls holds unused buffers. A buffer is taken when there is something to read, so that idle
// connections hold none.
var smalls = sync.Pool{New: func() any { return new([smallBytes]byte) }}

// passOn copies the stream until its end. After a read that fills the buffer it uses splice(2), without
// copies in this process, as long as enough bytes have arrived. An idle connection therefore holds
// neither a buffer nor a pipe, and received bytes are counted immediately.
func passOn(to, from *net.TCPConn, passed func(int)) error {
	raw, err := from.SyscallConn()
	if err != nil {
		return err
	}
	for {
		n, err := passSmall(to, raw)
		passed(n)
		if err == nil && n == smallBytes {
			err = passLarge(to, from, raw, passed)
		}
		if err != nil || n == 0 {
			return err
		}
	}
}

// passSmall waits until bytes arrive, and passes on at most smallBytes of them. At the end of the
// stream it returns 0.
func passSmall(to *net.TCPConn, raw syscall.RawConn) (n int, err error) {
	var buffer *[smallBytes]byte
	failed := raw.Read(func(fd uintptr) bool {
		buffer = smalls.Get().(*[smallBytes]byte)
		if n, err = unix.Read(int(fd), buffer[:]); !errors.Is(err, unix.EAGAIN) {
			return true
		}
		smalls.Put(buffer)
		return false
	})
	if failed != nil {
		return 0, failed
	}
	defer smalls.Put(buffer)
	if err != nil || n == 0 {
		return 0, err
	}
	return to.Write(buffer[:n])
}

// passLarge splices arrived bytes until fewer than smallBytes are waiting.
func passLarge(to, from *net.TCPConn, raw syscall.RawConn, passed func(int)) error {
	part := io.LimitedReader{R: from}
	for {
		var arrived int
		var err error
		failed := raw.Control(func(fd uintptr) { arrived, err = unix.IoctlGetInt(int(fd), unix.SIOCINQ) })
		if err = errors.Join(failed, err); err != nil || arrived < smallBytes {
			return err
		}
		part.N = int64(arrived)
		n, err := to.ReadFrom(&part)
		passed(int(n))
		switch {
		case err != nil:
			return err
		case n == 0:
			return io.ErrUnexpectedEOF
		}
	}
}

// abort resets both ends, so that neither takes half an answer for a whole one.
func (c *connection) abort() {
	reset(c.client)
	reset(c.upstream)
}

// close closes a connection that has ended in both directions.
func (c *connection) close() {
	_ = c.client.Close() // everything was passed on, or abort reset the connection before
	_ = c.upstream.Close()
}

// reset ends a connection so that the peer sees a failure.
func reset(conn *net.TCPConn) {
	_ = conn.SetLinger(0) // both calls fail only if the connection is closed already
	_ = conn.Close()
}

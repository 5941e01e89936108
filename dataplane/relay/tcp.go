package relay

import (
	"context"
	"io"
	"net"
	"net/netip"
	"sync/atomic"
	"syscall"
	"time"
)

// acceptor is the part of *net.TCPListener that a TCP server needs.
type acceptor interface {
	AcceptTCP() (*net.TCPConn, error)
	SyscallConn() (syscall.RawConn, error)
	Close() error
}

// tcpServer accepts TCP connections from one socket. Goroutines of their own forward them and
// outlive it.
type tcpServer struct {
	*Relay
	name   string
	socket acceptor
	choice Balancer
	counts *Counts
	slots  *budget
}

func newTCPServer(s *Relay, p Place, o Options, counts *Counts) (*tcpServer, error) {
	socket, err := s.listenTCP(p.At, o)
	if err != nil {
		return nil, err
	}
	return &tcpServer{
		Relay: s, name: p.String(), socket: socket, choice: o.Balancer, counts: counts,
		slots: newBudget(s.connectionsPerListener, s.connections),
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

// admit starts forwarding a connection, or resets it: a client beyond a bound should fail at once
// and not wait.
func (s *tcpServer) admit(client *net.TCPConn) {
	s.stats.ConnectionsAccepted.Add(1)
	if !s.slots.take() {
		s.stats.ConnectionsRefused.Add(1)
		s.atBound(s.name)
		reset(client)
		return
	}
	s.stats.Connections.Add(1)
	leave := func(failure error) {
		if failure != nil {
			reset(client)
		}
		s.stats.Connections.Add(-1)
		s.slots.give()
	}
	if !s.tasks.run(s.name, func() error { s.forward(client); return nil }, leave) {
		leave(ErrClosed)
	}
}

// forward connects to a target and copies until both directions have ended. If none answers, it
// resets the client: the end of the stream would look like an empty answer.
func (s *tcpServer) forward(client *net.TCPConn) {
	from := addrOf(client)
	upstream, target := s.connect(from)
	if upstream == nil {
		s.stats.ConnectionsUnreachable.Add(1)
		reset(client)
		return
	}
	c := &connection{client: client, upstream: upstream}
	ended := s.choice.Connected(from, target, c.abort)
	defer ended()
	s.counts.Connections.Add(1)
	c.pump(s.Relay, s.name, s.counts)
}

// addrOf returns the address of a client.
func addrOf(client *net.TCPConn) netip.Addr {
	at, _ := client.RemoteAddr().(*net.TCPAddr) // an address of a TCP connection always is one
	return at.AddrPort().Addr().Unmap()
}

// connect tries the targets of a client in turn; the connection is nil if none accepts. Each gets
// its share of the time.
func (s *tcpServer) connect(client netip.Addr) (*net.TCPConn, netip.AddrPort) {
	targets := s.choice.Targets(client)
	for i, target := range targets {
		upstream, err := s.dialTCP(s.tasks.ctx, target, s.dialTimeout/time.Duration(len(targets)))
		switch {
		case err == nil:
			return upstream, target
		case s.tasks.ctx.Err() != nil:
			return nil, target
		case i < len(targets)-1:
			s.stats.ConnectionsRetried.Add(1)
		}
		if !Exhausted(err) {
			s.choice.Failed(target)
		}
	}
	return nil, netip.AddrPort{}
}

// connection is a client's TCP connection and the one to the target.
type connection struct {
	client, upstream *net.TCPConn
}

// pump copies in both directions until both have ended, one of them has failed, or the tasks end.
// It blocks.
func (c *connection) pump(s *Relay, name string, counts *Counts) {
	defer c.close()
	release := atEnd(s.tasks.ctx, c.abort)
	defer release()
	other := make(chan struct{})
	requests := func() error {
		c.half(c.upstream, c.client, &s.stats.BytesToTargets, &counts.BytesToTargets)
		return nil
	}
	if !s.tasks.run(name, requests, func(error) { close(other) }) {
		c.abort()
		return
	}
	defer func() { <-other }()
	c.half(c.client, c.upstream, &s.stats.BytesToClients, &counts.BytesToClients)
}

// half copies one direction and passes its end on; the other direction may go on. If it fails or
// panics, both end.
func (c *connection) half(to, from *net.TCPConn, copied ...*atomic.Uint64) {
	whole := false
	defer func() {
		if !whole {
			c.abort()
		}
	}()
	n, err := io.Copy(to, from) // by splice(2), without copies in this process
	for _, count := range copied {
		count.Add(uint64(n))
	}
	whole = err == nil && to.CloseWrite() == nil
}

// abort resets both ends, so that neither mistakes half an answer for a whole one.
func (c *connection) abort() {
	reset(c.client)
	reset(c.upstream)
}

// close closes a connection that has ended in both directions.
func (c *connection) close() {
	_ = c.client.Close() // everything was passed on, or abort was first
	_ = c.upstream.Close()
}

// reset ends a connection so that the peer sees a failure.
func reset(conn *net.TCPConn) {
	_ = conn.SetLinger(0) // both fail only on a connection that is gone
	_ = conn.Close()
}

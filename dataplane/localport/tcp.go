package localport

import (
	"context"
	"io"
	"net"
	"net/netip"
	"sync/atomic"
)

// acceptor is the part of *net.TCPListener that a TCP server needs.
type acceptor interface {
	AcceptTCP() (*net.TCPConn, error)
	Close() error
}

// tcpServer accepts TCP connections from one socket. Goroutines of their own forward them and
// outlive it.
type tcpServer struct {
	*shared
	name   string
	socket acceptor
	target *atomic.Pointer[netip.AddrPort]
	slots  *budget
}

func newTCPServer(s *shared, p place, target *atomic.Pointer[netip.AddrPort]) (*tcpServer, error) {
	socket, err := s.listenTCP(p.at)
	if err != nil {
		return nil, err
	}
	return &tcpServer{
		shared: s, name: p.String(), socket: socket, target: target,
		slots: newBudget(s.connectionsPerListener, s.connections),
	}, nil
}

// Close closes the socket; connections go on.
func (s *tcpServer) Close() error { return s.socket.Close() }

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
	target := *s.target.Load()
	if !s.tasks.run(s.name, func() error { s.forward(client, target); return nil }, leave) {
		leave(errClosed)
	}
}

// forward connects to the target and copies until both directions have ended. If the target does
// not answer, it resets the client: the end of the stream would look like an empty answer.
func (s *tcpServer) forward(client *net.TCPConn, target netip.AddrPort) {
	upstream, err := s.dialTCP(s.tasks.ctx, target)
	if err != nil {
		s.stats.ConnectionsUnreachable.Add(1)
		reset(client)
		return
	}
	c := &connection{client: client, upstream: upstream}
	c.pump(s.shared, s.name)
}

// connection is a client's TCP connection and the one to the target.
type connection struct {
	client, upstream *net.TCPConn
}

// pump copies in both directions until both have ended, one of them has failed, or the tasks end.
// It blocks.
func (c *connection) pump(s *shared, name string) {
	defer c.close()
	release := atEnd(s.tasks.ctx, c.abort)
	defer release()
	other := make(chan struct{})
	requests := func() error { c.half(c.upstream, c.client, &s.stats.BytesToTargets); return nil }
	if !s.tasks.run(name, requests, func(error) { close(other) }) {
		c.abort()
		return
	}
	defer func() { <-other }()
	c.half(c.client, c.upstream, &s.stats.BytesToClients)
}

// half copies one direction and passes its end on; the other direction may go on. If it fails or
// panics, both end.
func (c *connection) half(to, from *net.TCPConn, copied *atomic.Uint64) {
	whole := false
	defer func() {
		if !whole {
			c.abort()
		}
	}()
	n, err := io.Copy(to, from) // by splice(2), without copies in this process
	copied.Add(uint64(n))
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

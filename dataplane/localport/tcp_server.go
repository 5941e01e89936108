package localport

import (
	"context"
	"net"
	"net/netip"
	"sync/atomic"
)

// acceptor is what a TCP server needs of a *net.TCPListener.
type acceptor interface {
	AcceptTCP() (*net.TCPConn, error)
	Close() error
}

// tcpServer takes TCP connections from one socket, and has each forwarded by
// goroutines of its own, which outlive it.
type tcpServer struct {
	*household
	name   string
	socket acceptor
	target *atomic.Pointer[netip.AddrPort]
	slots  *budget
}

func newTCPServer(h *household, p place, target *atomic.Pointer[netip.AddrPort]) (*tcpServer, error) {
	socket, err := h.listenTCP(p.at)
	if err != nil {
		return nil, err
	}
	return &tcpServer{
		household: h, name: p.String(), socket: socket, target: target,
		slots: newBudget(h.connectionsPerListener, h.connections),
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

// admit has a connection forwarded, or resets it: a client beyond a bound is
// told at once instead of being left to wait.
func (s *tcpServer) admit(client *net.TCPConn) {
	s.counters.accepted.Add(1)
	if !s.slots.take() {
		s.counters.refused.Add(1)
		reset(client)
		return
	}
	s.counters.connections.Add(1)
	leave := func(failure error) {
		if failure != nil {
			reset(client)
		}
		s.counters.connections.Add(-1)
		s.slots.give()
	}
	target := *s.target.Load()
	if !s.crew.run(s.name, func() error { s.forward(client, target); return nil }, leave) {
		leave(errClosed)
	}
}

// forward connects to the target and copies until both directions have ended.
// When the target does not answer, the client sees a reset: the end of the
// stream would look like an empty answer.
func (s *tcpServer) forward(client *net.TCPConn, target netip.AddrPort) {
	upstream, err := s.dialTCP(s.crew.ctx, target)
	if err != nil {
		s.counters.unreachable.Add(1)
		reset(client)
		return
	}
	c := &connection{client: client, upstream: upstream}
	c.pump(s.household, s.name)
}

// reset ends a connection so that the peer sees it as failed.
func reset(conn *net.TCPConn) {
	_ = conn.SetLinger(0) // either fails only on a connection that is gone
	_ = conn.Close()
}

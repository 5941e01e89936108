// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/service"
)

// datagramBytesMax exceeds the largest datagram (65,507 bytes over IPv4, 65,527 over IPv6), so that
// none is cut.
const datagramBytesMax = 64 << 10

// datagrams holds unused buffers. A buffer is taken when there is something to read, so that idle
// sessions hold none.
var datagrams = sync.Pool{New: func() any { return new([datagramBytesMax]byte) }}

// udpServer receives datagrams from one socket and passes them on, in a separate session for each
// client. Only the goroutine in serve opens sessions.
type udpServer struct {
	*Relay
	place  Place
	name   string
	socket *net.UDPConn
	*choice
	sessions sessionTable
	// began is when the server was created. Sessions measure time from it.
	began time.Time
}

func newUDPServer(s *Relay, p Place, o Options) (*udpServer, error) {
	socket, err := s.listenUDP(p.At, o)
	if err != nil {
		return nil, err
	}
	return &udpServer{
		Relay: s, place: p, name: p.String(), socket: socket, choice: newChoice(o.Balancer, s.sessions),
		began: time.Now(),
	}, nil
}

// Close closes the socket.
func (s *udpServer) Close() error { return s.socket.Close() }

func (s *udpServer) control(f func(fd uintptr)) error { return controlled(s.socket, f) }

// serve passes datagrams on until the socket is closed, and then ends every session.
func (s *udpServer) serve(ctx context.Context) error {
	defer s.sessions.closeAll()
	buffer := datagrams.Get().(*[datagramBytesMax]byte)
	defer datagrams.Put(buffer)
	var pace backoff
	for {
		size, client, err := s.socket.ReadFromUDPAddrPort(buffer[:])
		if err == nil {
			pace.reset()
			s.pass(client, buffer[:size])
			continue
		}
		if errors.Is(err, os.ErrDeadlineExceeded) { // drain
			<-ctx.Done()
		}
		if goOn, failure := pace.tolerate(ctx, err); !goOn {
			return failure
		}
	}
}

// drain stops reading datagrams. Sessions continue.
func (s *udpServer) drain() { _ = s.socket.SetReadDeadline(time.Unix(1, 0)) } // it fails on a closed socket only

// forged reports whether a source address is forged: that of a listener, or port 0, which no process
// uses. A reply to a listener could cause replies without end.
func (s *udpServer) forged(client netip.AddrPort) bool {
	return client.Port() == 0 || s.places.has(Place{service.UDP, netip.AddrPortFrom(client.Addr().Unmap(), client.Port())})
}

// pass sends a datagram on. If the session ended since the previous datagram, or if send returns the error of
// the previous one (ECONNREFUSED), this datagram was not sent: pass tries once more, in a new session.
func (s *udpServer) pass(client netip.AddrPort, datagram []byte) {
	if s.forged(client) {
		s.stats.DatagramsDropped.Add(1)
		return
	}
	for range 2 {
		session := s.session(client)
		if session == nil {
			break
		}
		err := session.send(datagram)
		if err == nil {
			session.toTarget(len(datagram))
			return
		}
		if errors.Is(err, unix.ECONNREFUSED) {
			s.balancer().Failed(session.Target, err, true)
		} else if !errors.Is(err, net.ErrClosed) {
			break // for example a full buffer: the datagram is lost, as on any network
		}
		session.close()
	}
	s.stats.DatagramsDropped.Add(1)
}

// session returns the client's session to one of the current targets, nil if none can be opened.
func (s *udpServer) session(client netip.AddrPort) *session {
	from := client.Addr().Unmap()
	known := s.sessions.get(client)
	if known != nil && s.balancer().Keeps(from, known.Target) {
		return known
	}
	if known != nil {
		known.close()
	}
	conn, target := s.connect(netip.AddrPortFrom(from, client.Port()))
	if conn == nil {
		return nil
	}
	opened := newSession(s, client, target, conn)
	opened.ended = s.balancer().Connected(&opened.Connection)
	if !s.makeRoom(opened) {
		opened.close()
		return nil
	}
	s.sessions.put(opened)
	s.stats.SessionsOpened.Add(1)
	relay := func() error { opened.relay(); return nil }
	if !s.tasks.run(s.name, relay, func(error) { opened.close() }) {
		opened.close()
		return nil
	}
	return opened
}

// connect opens a socket to the first target of a client for which opening one succeeds, nil if none
// succeeds.
func (s *udpServer) connect(client netip.AddrPort) (*net.UDPConn, netip.AddrPort) {
	targets := s.balancer().Targets(client)
	if len(targets) == 0 {
		s.balancer().Refused(client, s.place.At, NoTarget)
		return nil, netip.AddrPort{}
	}
	for i, target := range targets {
		conn, err := s.dialUDP(target)
		if err == nil {
			return conn, target
		}
		if !Exhausted(err) {
			s.balancer().Failed(target, err, i < len(targets)-1)
		}
	}
	s.balancer().Refused(client, s.place.At, Unreachable)
	return nil, netip.AddrPort{}
}

// makeRoom takes a slot for a session. If necessary it ends another session and takes its slot. It
// returns false if no slot is available.
func (s *udpServer) makeRoom(opened *session) bool {
	replaced, ok := s.budget().takeFor(&opened.slot, opened.Client.Addr(), opened)
	for _, r := range replaced {
		r.evict()
	}
	if !ok {
		s.stats.ConnectionsRefused.Add(1)
		s.balancer().Refused(opened.Client, s.place.At, TotalFull)
	}
	return ok
}

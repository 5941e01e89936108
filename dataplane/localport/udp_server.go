package localport

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// datagramBytesMax is beyond the largest datagram (65,507 bytes over IPv4,
// 65,527 over IPv6), so that none is cut.
const datagramBytesMax = 64 << 10

// datagrams holds buffers that are not in use. A buffer is taken when something
// can be read, so that idle sessions hold none.
var datagrams = sync.Pool{New: func() any { return new([datagramBytesMax]byte) }}

// udpServer takes datagrams from one socket, and passes those of each client on
// in a session of its own. The goroutine in serve opens sessions.
type udpServer struct {
	*household
	name     string
	socket   *net.UDPConn
	target   *atomic.Pointer[netip.AddrPort]
	slots    *budget
	sessions sessionTable
	// began is when the server was made; sessions count time from there.
	began time.Time
}

func newUDPServer(h *household, p place, target *atomic.Pointer[netip.AddrPort]) (*udpServer, error) {
	socket, err := h.listenUDP(p.at)
	if err != nil {
		return nil, err
	}
	return &udpServer{
		household: h, name: p.String(), socket: socket, target: target,
		slots: newBudget(h.sessionsPerListener, h.sessions), began: time.Now(),
	}, nil
}

// Close closes the socket.
func (s *udpServer) Close() error { return s.socket.Close() }

// serve passes datagrams on until the socket is closed, and ends every session
// then.
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
		if goOn, failure := pace.tolerate(ctx, err); !goOn {
			return failure
		}
	}
}

// pass sends a datagram on. A session that ended between two datagrams, or that
// learns only now that the last one was refused, has not sent this one: it is
// tried once more in a new session.
func (s *udpServer) pass(client netip.AddrPort, datagram []byte) {
	for range 2 {
		session := s.session(client)
		if session == nil {
			break
		}
		err := session.send(datagram)
		if err == nil {
			s.counters.toTargets.Add(uint64(len(datagram)))
			return
		}
		if !errors.Is(err, unix.ECONNREFUSED) && !errors.Is(err, net.ErrClosed) {
			break // no room in a buffer, say: the datagram is lost, as on any way
		}
		session.close()
	}
	s.counters.dropped.Add(1)
}

// session gives the client's session to the present target, and nil when none
// can be opened.
func (s *udpServer) session(client netip.AddrPort) *session {
	target := *s.target.Load()
	known := s.sessions.get(client)
	if known != nil && known.target == target {
		return known
	}
	if known != nil {
		known.close()
	}
	if !s.makeRoom() {
		return nil
	}
	conn, err := s.dialUDP(target)
	if err != nil {
		s.slots.give()
		return nil
	}
	opened := newSession(s, client, target, conn)
	s.sessions.put(opened)
	s.counters.opened.Add(1)
	relay := func() error { opened.relay(); return nil }
	if !s.crew.run(s.name, relay, func(error) { opened.close() }) {
		opened.close()
		return nil
	}
	return opened
}

// makeRoom takes a slot, if need be that of the least recently active session of
// this listener. It reports false when there is none: others have all of them.
func (s *udpServer) makeRoom() bool {
	for !s.slots.take() {
		oldest := s.sessions.leastActive()
		if oldest == nil {
			return false
		}
		s.counters.evicted.Add(1)
		oldest.close()
	}
	return true
}

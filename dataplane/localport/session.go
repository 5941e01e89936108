package localport

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// session carries one client's datagrams to the target and the answers back, by
// a socket that is connected to the target: so the kernel sees a flow per
// client, and its rules choose an endpoint for each.
//
// It ends after a time without traffic, when the target refuses, when it has to
// make room, and with its listener.
type session struct {
	server *udpServer
	client netip.AddrPort
	target netip.AddrPort
	conn   *net.UDPConn
	raw    syscall.RawConn
	// active is the time of the last datagram, in nanoseconds from the server's
	// beginning; replied is set by the first answer.
	active  atomic.Int64
	replied atomic.Bool
	ending  sync.Once
}

func newSession(server *udpServer, client, target netip.AddrPort, conn *net.UDPConn) *session {
	s := &session{server: server, client: client, target: target, conn: conn}
	s.raw, _ = conn.SyscallConn() // fails only for a nil connection
	s.touch()
	server.counters.sessions.Add(1)
	return s
}

// close ends the session, once. When it returns, its client has none and its slot
// can be taken.
func (s *session) close() {
	s.server.sessions.remove(s)
	s.ending.Do(func() {
		_ = s.conn.Close() // a datagram socket has nothing left to lose
		s.server.counters.sessions.Add(-1)
		s.server.slots.give()
	})
}

func (s *session) touch() { s.active.Store(int64(time.Since(s.server.began))) }

// send passes a datagram to the target. It does not block: what cannot be sent
// at once would hold up the listener's other clients, and is an error instead.
func (s *session) send(datagram []byte) error {
	var sent error
	err := s.raw.Write(func(fd uintptr) bool {
		_, sent = unix.Write(int(fd), datagram)
		return true
	})
	if err != nil {
		return net.ErrClosed // a Write that never waits fails for no other reason
	}
	if sent == nil {
		s.touch()
	}
	return sent
}

// relay passes answers to the client until the session ends.
func (s *session) relay() {
	for time.Now().Before(s.expiry()) {
		if s.conn.SetReadDeadline(s.expiry()) != nil {
			return // closed
		}
		var err error
		for err == nil {
			err = s.answer()
		}
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded): // datagrams may have moved it
		case errors.Is(err, net.ErrClosed):
			return
		default: // what ICMP says of a connected socket (udp(7))
			s.server.counters.sessionsRefused.Add(1)
			return
		}
	}
}

// expiry is when the session ends if nothing more happens.
func (s *session) expiry() time.Time {
	patience := s.server.unreplied
	if s.replied.Load() {
		patience = s.server.replied
	}
	return s.server.began.Add(time.Duration(s.active.Load()) + patience)
}

// answer waits for a datagram, and passes it on.
func (s *session) answer() error {
	var failure error
	err := s.raw.Read(func(fd uintptr) bool {
		failure = s.passOn(int(fd))
		return !errors.Is(failure, unix.EAGAIN) // otherwise wait, without a buffer
	})
	if err != nil {
		return err
	}
	return failure
}

// passOn passes one datagram on, if there is one.
func (s *session) passOn(fd int) error {
	buffer := datagrams.Get().(*[datagramBytesMax]byte)
	defer datagrams.Put(buffer)
	size, err := unix.Read(fd, buffer[:])
	if err != nil {
		return err
	}
	s.replied.Store(true)
	s.touch()
	if _, err := s.server.socket.WriteToUDPAddrPort(buffer[:size], s.client); err != nil {
		s.server.counters.dropped.Add(1)
		return nil // the client's loss; the end of the listener ends the session by itself
	}
	s.server.counters.toClients.Add(uint64(size))
	return nil
}

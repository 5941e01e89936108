// SPDX-License-Identifier: Apache-2.0

package relay

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

// session carries one client's datagrams to the target and the answers back, over a socket that is
// connected to the target. The kernel therefore sees one flow per client, and its rules choose an
// endpoint for each client.
//
// It ends after a time without traffic, if the target refuses, if its slot is needed, and with its
// listener.
type session struct {
	Connection
	server *udpServer
	slot   Slot
	// client is the client's address as the server's socket returned it.
	client netip.AddrPort
	conn   *net.UDPConn
	raw    syscall.RawConn
	// active is the time of the last datagram, in nanoseconds from the server's beginning.
	active atomic.Int64
	// moved is the time of the last call of slot.touch, in the same unit.
	moved atomic.Int64
	// replied is set by the first answer.
	replied atomic.Bool
	// pending counts datagrams sent to the target that it has not answered yet.
	pending atomic.Int64
	ending  sync.Once
	// ended tells the balancer that the session ended. close calls it once.
	ended func()
}

func newSession(server *udpServer, client, target netip.AddrPort, conn *net.UDPConn) *session {
	s := &session{server: server, client: client, conn: conn, ended: func() {}, Connection: Connection{
		Place: server.place, Client: netip.AddrPortFrom(client.Addr().Unmap(), client.Port()), Target: target,
		Began: time.Now(), stats: &server.stats.Bytes,
	}}
	s.Cut = func() { _ = conn.Close() } // then relay ends the session
	s.raw, _ = conn.SyscallConn()       // fails only for a nil connection
	now := int64(time.Since(server.began))
	s.active.Store(now)
	s.moved.Store(now)
	server.stats.Sessions.Add(1)
	return s
}

// close ends the session, once. When it returns, its client has no session and its slot is free.
func (s *session) close() {
	s.server.sessions.remove(s)
	s.ending.Do(func() {
		_ = s.conn.Close() // a datagram socket has nothing left to lose
		s.server.stats.Sessions.Add(-1)
		if s.pending.Swap(0) > 0 {
			s.server.stats.Unanswered.Add(-1)
		}
		s.slot.Release()
		s.ended()
	})
}

// evict ends the session, because another one took its slot.
func (s *session) evict() {
	s.server.stats.SessionsEvicted.Add(1)
	s.server.balancer().Refused(s.Client, s.Place.At, Replaced)
	s.close()
}

// lastActive returns the time of the last datagram.
func (s *session) lastActive() time.Time { return s.server.began.Add(time.Duration(s.active.Load())) }

// touchEvery is the shortest time between two calls of slot.touch for a session, because each call
// takes the lock of the whole pool.
const touchEvery = time.Second

// touch notes a datagram.
func (s *session) touch() {
	now, moved := int64(time.Since(s.server.began)), s.moved.Load()
	s.active.Store(now)
	if now-moved >= int64(touchEvery) && s.moved.CompareAndSwap(moved, now) {
		s.slot.touch()
	}
}

// asked notes a datagram to the target.
func (s *session) asked() {
	if s.pending.Add(1) == 1 {
		s.server.stats.Unanswered.Add(1)
	}
}

// answered notes a datagram from the target, or that one to it was not sent.
func (s *session) answered() {
	for n := s.pending.Load(); n > 0; n = s.pending.Load() {
		if !s.pending.CompareAndSwap(n, n-1) {
			continue
		}
		if n == 1 {
			s.server.stats.Unanswered.Add(-1)
		}
		return
	}
}

// send passes a datagram to the target. It does not block: if it cannot send immediately, it returns an
// error and does not hold up the listener's other clients.
func (s *session) send(datagram []byte) error {
	var sent error
	s.asked() // before an answer can come
	err := s.raw.Write(func(fd uintptr) bool {
		_, sent = unix.Write(int(fd), datagram)
		return true
	})
	switch {
	case err != nil:
		s.answered()
		return net.ErrClosed // a Write that never waits fails for no other reason
	case sent != nil:
		s.answered()
	default:
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
		case errors.Is(err, os.ErrDeadlineExceeded): // datagrams may have moved the expiry
		case errors.Is(err, net.ErrClosed):
			return
		default: // an ICMP error on a connected socket (udp(7))
			s.server.stats.SessionsRefused.Add(1)
			s.server.balancer().Failed(s.Target, err, false)
			return
		}
	}
}

// streamAfter is how old a session is when it counts as a stream (nf_conntrack_proto_udp.c).
const streamAfter = 2 * time.Second

// expiry returns when the session ends without further traffic. Like conntrack, it gives a request
// with one answer little time, because DNS clients send each query from another port.
func (s *session) expiry() time.Time {
	last, patience := s.lastActive(), s.server.unreplied
	if s.replied.Load() && last.Sub(s.Began) > streamAfter {
		patience = s.server.replied
	}
	return last.Add(patience)
}

// answer waits for a datagram and passes it on.
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
	defer s.answered() // only after the write, because a process that ends may wait for unanswered sessions
	s.replied.Store(true)
	s.touch()
	if _, err := s.server.socket.WriteToUDPAddrPort(buffer[:size], s.client); err != nil {
		s.server.stats.DatagramsDropped.Add(1)
		return nil // only this client loses a datagram; if the listener ended, it ends the session
	}
	s.toClient(size)
	return nil
}

// sessionTable finds the sessions of one listener by client. The lock guards only the map; no session
// is closed under it. The zero value is ready.
type sessionTable struct {
	mu       sync.Mutex
	byClient map[netip.AddrPort]*session
}

// get returns a client's session, nil if there is none.
func (t *sessionTable) get(client netip.AddrPort) *session {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.byClient[client]
}

func (t *sessionTable) put(s *session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byClient == nil {
		t.byClient = make(map[netip.AddrPort]*session)
	}
	t.byClient[s.client] = s
}

// remove forgets a session, unless its client has another one by now.
func (t *sessionTable) remove(s *session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byClient[s.client] == s {
		delete(t.byClient, s.client)
	}
}

// closeAll ends all sessions.
func (t *sessionTable) closeAll() {
	t.mu.Lock()
	all := t.byClient
	t.byClient = nil
	t.mu.Unlock()
	for _, s := range all {
		s.close()
	}
}

package relay

import (
	"context"
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

// datagramBytesMax exceeds the largest datagram (65,507 bytes over IPv4, 65,527 over IPv6), so that
// none is cut.
const datagramBytesMax = 64 << 10

// datagrams holds unused buffers. A buffer is taken when there is something to read, so that idle
// sessions hold none.
var datagrams = sync.Pool{New: func() any { return new([datagramBytesMax]byte) }}

// udpServer receives datagrams from one socket and passes those of each client on in a session of
// its own. The goroutine in serve opens sessions.
type udpServer struct {
	*Relay
	place    Place
	name     string
	socket   *net.UDPConn
	choice   Balancer
	slots    func() *Budget
	sessions sessionTable
	// began is when the server was made. Sessions count time from there.
	began time.Time
}

func newUDPServer(s *Relay, p Place, o Options) (*udpServer, error) {
	socket, err := s.listenUDP(p.At, o)
	if err != nil {
		return nil, err
	}
	return &udpServer{
		Relay: s, place: p, name: p.String(), socket: socket, choice: o.Balancer,
		slots: o.slots(s.sessionsPerListener, s.sessions), began: time.Now(),
	}, nil
}

// Close closes the socket.
func (s *udpServer) Close() error { return s.socket.Close() }

func (s *udpServer) control(f func(fd uintptr)) error { return controlled(s.socket, f) }

// serve passes datagrams on until the socket is closed, and then ends every session.
func (s *udpServer) serve(ctx context.Context) error {
	defer s.end()
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

// end closes the sessions. Budgets of a former Service keep the empty table until they go.
func (s *udpServer) end() {
	s.slots().tables.Delete(&s.sessions)
	s.sessions.closeAll()
}

// drain reads no more datagrams. Sessions go on.
func (s *udpServer) drain() { _ = s.socket.SetReadDeadline(time.Unix(1, 0)) } // it fails on a closed socket only

// pass sends a datagram on. A session that has ended since the last datagram, or that learns only
// now that the last one was refused, has not sent this one: a new session tries it once more.
func (s *udpServer) pass(client netip.AddrPort, datagram []byte) {
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
			s.choice.Failed(session.Target, true)
		} else if !errors.Is(err, net.ErrClosed) {
			break // for example a full buffer: the datagram is lost, as on any network
		}
		session.close()
	}
	s.stats.DatagramsDropped.Add(1)
}

// session returns the client's session to one of the present targets, nil if none can be opened.
func (s *udpServer) session(client netip.AddrPort) *session {
	from := client.Addr().Unmap()
	known := s.sessions.get(client)
	if known != nil && s.choice.Keeps(from, known.Target) {
		return known
	}
	if known != nil {
		known.close()
	}
	targets := s.choice.Targets(from)
	if len(targets) == 0 {
		s.choice.Refused(NoTarget)
		return nil
	}
	slots := s.slots()
	if !s.makeRoom(slots) {
		return nil
	}
	target := targets[0]
	conn, err := s.dialUDP(target)
	if err != nil {
		slots.Give()
		return nil
	}
	opened := newSession(s, slots, client, target, conn)
	opened.ended = s.choice.Connected(&opened.Connection)
	s.sessions.put(opened)
	s.stats.SessionsOpened.Add(1)
	relay := func() error { opened.relay(); return nil }
	if !s.tasks.run(s.name, relay, func(error) { opened.close() }) {
		opened.close()
		return nil
	}
	return opened
}

// makeRoom takes a slot, if necessary that of the least recently active session of the budget. It
// reports false if others have all slots.
func (s *udpServer) makeRoom(slots *Budget) bool {
	slots.tables.LoadOrStore(&s.sessions, nil)
	for !slots.Take() {
		oldest := slots.leastActive()
		if oldest == nil {
			s.stats.ConnectionsRefused.Add(1)
			s.choice.Refused(slots.refusal())
			return false
		}
		s.stats.SessionsEvicted.Add(1)
		s.choice.Refused(Replaced)
		oldest.close()
	}
	return true
}

// session carries one client's datagrams to the target and the answers back, over a socket that is
// connected to the target. So the kernel sees one flow per client, and its rules choose an endpoint
// for each.
//
// It ends after a time without traffic, if the target refuses, if its slot is needed, and with its
// listener.
type session struct {
	Connection
	server *udpServer
	slots  *Budget
	// client is as the server's socket names it.
	client netip.AddrPort
	conn   *net.UDPConn
	raw    syscall.RawConn
	// active is the time of the last datagram, in nanoseconds from the server's beginning.
	active atomic.Int64
	// replied is set by the first answer.
	replied atomic.Bool
	// pending counts datagrams to the target that none from it has followed yet.
	pending atomic.Int64
	ending  sync.Once
	// ended tells the balancer, once.
	ended func()
}

func newSession(server *udpServer, slots *Budget, client, target netip.AddrPort, conn *net.UDPConn) *session {
	s := &session{server: server, slots: slots, client: client, conn: conn, ended: func() {}, Connection: Connection{
		Place: server.place, Client: netip.AddrPortFrom(client.Addr().Unmap(), client.Port()), Target: target,
		Began: time.Now(), stats: &server.stats.Bytes,
	}}
	s.Cut = func() { _ = conn.Close() } // then relay ends the session
	s.raw, _ = conn.SyscallConn()       // fails only for a nil connection
	s.touch()
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
		s.slots.Give()
		s.ended()
	})
}

// lastActive returns the time of the last datagram.
func (s *session) lastActive() time.Time { return s.server.began.Add(time.Duration(s.active.Load())) }

func (s *session) touch() { s.active.Store(int64(time.Since(s.server.began))) }

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

// send passes a datagram to the target. It does not block: if it cannot send at once, it returns an
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
		case errors.Is(err, os.ErrDeadlineExceeded): // datagrams may have moved it
		case errors.Is(err, net.ErrClosed):
			return
		default: // an ICMP error on a connected socket (udp(7))
			s.server.stats.SessionsRefused.Add(1)
			s.server.choice.Failed(s.Target, false)
			return
		}
	}
}

// expiry returns when the session ends without further traffic.
func (s *session) expiry() time.Time {
	patience := s.server.unreplied
	if s.replied.Load() {
		patience = s.server.replied
	}
	return s.lastActive().Add(patience)
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
	defer s.answered() // afterwards: it may be what the end of this process waits for
	s.replied.Store(true)
	s.touch()
	if _, err := s.server.socket.WriteToUDPAddrPort(buffer[:size], s.client); err != nil {
		s.server.stats.DatagramsDropped.Add(1)
		return nil // only the client loses; if the listener has ended, the session ends by itself
	}
	s.toClient(size)
	return nil
}

// sessionTable finds the sessions of one listener by client. The lock guards the map, never a call.
// The zero value is ready.
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

// leastActive returns the session of a budget whose last datagram is the oldest, or least if that is
// older.
func (t *sessionTable) leastActive(of *Budget, least *session) *session {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.byClient {
		if s.slots == of && (least == nil || s.lastActive().Before(least.lastActive())) {
			least = s
		}
	}
	return least
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

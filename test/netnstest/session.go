// SPDX-License-Identifier: Apache-2.0

package netnstest

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/sluice-proxy/sluice/internal/host/netns"
)

// DialFrom is [netns.Namespace.DialContext] from a given address and port. The kernel chooses the zero address and port 0.
// TCP connections send no keepalive probes.
func DialFrom(ctx context.Context, n Host, network string, source netip.AddrPort, addr string) (net.Conn, error) {
	dialer := net.Dialer{KeepAlive: netns.NoProbes}
	if source.IsValid() {
		if dialer.LocalAddr = net.UDPAddrFromAddrPort(source); strings.HasPrefix(network, "tcp") {
			dialer.LocalAddr = net.TCPAddrFromAddrPort(source)
		}
	}
	var conn net.Conn
	err := n.Do(func() (err error) {
		conn, err = dialer.DialContext(ctx, network, addr)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("netns %s: %w", n.Name(), err)
	}
	return conn, nil
}

// Answer is what a [Backend] sends to a client.
type Answer struct {
	// Backend is the name of the one that answered.
	Backend string
	// Client is where the question came from, as the backend saw it; after address translation this
	// is not the client's own address.
	Client netip.AddrPort
}

// ParseAnswer reads the answer of a [Backend].
func ParseAnswer(line string) (Answer, error) {
	name, client, found := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
	addr, err := netip.ParseAddrPort(client)
	if !found || err != nil {
		return Answer{}, fmt.Errorf("netnstest: %q is not the answer of a Backend (must be \"name clientIP:port\")", line)
	}
	return Answer{Backend: name, Client: addr}, nil
}

// Ask reaches the target once from inside the namespace, over "tcp" or "udp", on a new connection,
// and returns what the [Backend] there says. It sends nothing twice: a lost datagram is an error
// when the context ends, so a caller sees every loss. A context without a deadline gets five
// seconds.
func Ask(ctx context.Context, n Host, network string, target netip.AddrPort) (Answer, error) {
	return AskFrom(ctx, n, network, netip.AddrPort{}, target)
}

// AskFrom is [Ask] from a given address and port. The kernel chooses the zero address and
// port 0.
func AskFrom(ctx context.Context, n Host, network string, source, target netip.AddrPort) (Answer, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	if strings.HasPrefix(network, "tcp") {
		session, err := ConnectFrom(ctx, n, source, target)
		if err != nil {
			return Answer{}, err
		}
		return session.Answer(), session.Close()
	}
	answer, err := askDatagram(ctx, n, network, source, target)
	if err != nil {
		return Answer{}, fmt.Errorf("netns %s: ask %s %s: %w", n.Name(), network, target, err)
	}
	return answer, nil
}

func askDatagram(ctx context.Context, n Host, network string, source, target netip.AddrPort) (Answer, error) {
	conn, err := DialFrom(ctx, n, network, source, target.String())
	if err != nil {
		return Answer{}, err
	}
	defer conn.Close() // a datagram socket has nothing left to lose
	if err := until(ctx, conn); err != nil {
		return Answer{}, err
	}
	if _, err := conn.Write([]byte("?")); err != nil {
		return Answer{}, err
	}
	return readAnswer(conn)
}

func readAnswer(conn net.Conn) (Answer, error) {
	reply := make([]byte, 256)
	size, err := conn.Read(reply)
	if err != nil {
		return Answer{}, err
	}
	return ParseAnswer(string(reply[:size]))
}

func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, askMax)
}

// until applies the deadline of a bounded context to a connection.
func until(ctx context.Context, conn interface{ SetDeadline(time.Time) error }) error {
	deadline, _ := ctx.Deadline()
	return conn.SetDeadline(deadline)
}

// Session is one TCP connection to a [Backend] that stays open, to show that it survives something.
// Neither end sends keepalive probes: between two lines the connection is silent.
// Its methods must not be called at the same time.
type Session struct {
	target netip.AddrPort
	conn   net.Conn
	lines  *bufio.Reader
	answer Answer
}

// Connect opens a session from inside the namespace and reads the greeting. A context without a
// deadline gets five seconds.
func Connect(ctx context.Context, n Host, target netip.AddrPort) (*Session, error) {
	return ConnectFrom(ctx, n, netip.AddrPort{}, target)
}

// ConnectFrom is [Connect] from an address and a port as for [AskFrom].
func ConnectFrom(ctx context.Context, n Host, source, target netip.AddrPort) (*Session, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	conn, err := DialFrom(ctx, n, "tcp", source, target.String())
	if err != nil {
		return nil, err
	}
	s := &Session{target: target, conn: conn, lines: bufio.NewReader(conn)}
	if err := s.greet(ctx); err != nil {
		_ = conn.Close() // the greeting's error is the one to report
		return nil, fmt.Errorf("netns %s: ask tcp %s: %w", n.Name(), target, err)
	}
	return s, nil
}

func (s *Session) greet(ctx context.Context) error {
	if err := until(ctx, s.conn); err != nil {
		return err
	}
	line, err := s.lines.ReadString('\n')
	if err != nil {
		return fmt.Errorf("read the greeting: %w", err)
	}
	s.answer, err = ParseAnswer(line)
	return err
}

// Answer returns what the backend said when the session was opened.
func (s *Session) Answer() Answer { return s.answer }

// Local returns the client's address and port.
func (s *Session) Local() netip.AddrPort {
	return s.conn.LocalAddr().(*net.TCPAddr).AddrPort() // DialFrom over tcp returns this type
}

// Echo sends one line, without its line end, and returns an error unless the same line comes back
// before the context ends. A context without a deadline gets five seconds.
func (s *Session) Echo(ctx context.Context, line string) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	if err := until(ctx, s.conn); err != nil {
		return fmt.Errorf("session with %s: %w", s.target, err)
	}
	if _, err := io.WriteString(s.conn, line+"\n"); err != nil {
		return fmt.Errorf("session with %s: send %q: %w", s.target, line, err)
	}
	back, err := s.lines.ReadString('\n')
	if err != nil {
		return fmt.Errorf("session with %s: wait for %q to return: %w", s.target, line, err)
	}
	if back != line+"\n" {
		return fmt.Errorf("session with %s: sent %q, got back %q", s.target, line, back)
	}
	return nil
}

// Reset ends the session by a reset. Neither end then waits for the other, and hosts on the way
// forget the connection within seconds; after an orderly end they keep it for minutes.
func (s *Session) Reset() error {
	if err := s.conn.(*net.TCPConn).SetLinger(0); err != nil { // DialFrom over tcp gives this type
		return fmt.Errorf("session with %s: %w", s.target, err)
	}
	return s.Close()
}

// Close ends the session.
func (s *Session) Close() error {
	if err := s.conn.Close(); err != nil {
		return fmt.Errorf("session with %s: close: %w", s.target, err)
	}
	return nil
}

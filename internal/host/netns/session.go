package netns

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
)

// Session is one TCP connection to a [Backend] that stays open, to show that it survives something.
// Its methods must not be called at the same time.
type Session struct {
	target netip.AddrPort
	conn   net.Conn
	lines  *bufio.Reader
	answer Answer
}

// Connect opens a session from inside the namespace and reads the greeting. A context without a
// deadline gets five seconds.
func (n *Namespace) Connect(ctx context.Context, target netip.AddrPort) (*Session, error) {
	return n.ConnectFrom(ctx, netip.AddrPort{}, target)
}

// ConnectFrom is [Namespace.Connect] from an address and a port as for [Namespace.AskFrom].
func (n *Namespace) ConnectFrom(ctx context.Context, source, target netip.AddrPort) (*Session, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	conn, err := n.DialFrom(ctx, "tcp", source, target.String())
	if err != nil {
		return nil, err
	}
	s := &Session{target: target, conn: conn, lines: bufio.NewReader(conn)}
	if err := s.greet(ctx); err != nil {
		_ = conn.Close() // the greeting's error is the one to report
		return nil, n.errorf("ask tcp %s: %w", target, err)
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
	s.answer, err = parseAnswer(line)
	return err
}

// Answer returns what the backend said when the session was opened.
func (s *Session) Answer() Answer { return s.answer }

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
		return fmt.Errorf("session with %s: wait for %q to come back: %w", s.target, line, err)
	}
	if back != line+"\n" {
		return fmt.Errorf("session with %s: sent %q, got back %q", s.target, line, back)
	}
	return nil
}

// Reset ends the session by a reset, after which no end waits for anything of the other and those on the
// way forget it within seconds; after an orderly end they keep it for minutes.
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

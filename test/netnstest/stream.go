// SPDX-License-Identifier: Apache-2.0

package netnstest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/internal/sleep"
)

// Stream is a client that sends every 5 ms from one socket, regardless of the answers, as a client of DNS or of a game
// does. Over TCP, it connects again when its connection ends.
type Stream struct {
	protocol string
	target   netip.AddrPort
	running  sync.WaitGroup
	stop     context.CancelFunc

	mu   sync.Mutex
	conn net.Conn
	// last is the newest answer, and changed when its backend first answered in a row.
	last          string
	changed, came time.Time
}

const streamPause = 5 * time.Millisecond

// OpenStream begins to send over UDP from inside a namespace. The kernel chooses the zero source and port 0.
func OpenStream(ctx context.Context, n *netns.Namespace, source, target netip.AddrPort) (*Stream, error) {
	conn, err := DialFrom(ctx, n, "udp", source, target.String())
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	s := &Stream{protocol: "udp", target: target, conn: conn, stop: stop}
	s.running.Go(func() {
		_ = s.send(ctx, conn, func(error) bool { return true }) // an earlier datagram was refused
	})
	s.running.Go(func() { s.listen(conn) })
	return s, nil
}

// OpenTCPStream begins to connect and to send over TCP from inside a namespace.
func OpenTCPStream(ctx context.Context, n *netns.Namespace, target netip.AddrPort) *Stream {
	ctx, stop := context.WithCancel(ctx)
	s := &Stream{protocol: "tcp", target: target, stop: stop}
	s.running.Go(func() {
		for ctx.Err() == nil {
			s.converse(ctx, n)
			sleep.For(ctx, streamPause) // the connection was refused or reset
		}
	})
	return s
}

// sources counts the ports that streams over TCP have had, from 1024 to 32767, where the kernel chooses none.
var sources atomic.Uint32

// unusedSource returns a port that no stream had for the last 30,000 connections. The server of a client that was reset while
// the rules were missing still has the connection, and the kernel still translates it. If another client had its port,
// its packets would reach that connection, which answers none of them and is never reset.
func unusedSource(target netip.Addr) netip.AddrPort {
	local := netip.IPv6Unspecified()
	if target.Is4() {
		local = netip.IPv4Unspecified()
	}
	const first, ports = 1024, 32768 - 1024
	return netip.AddrPortFrom(local, uint16(first+sources.Add(1)%ports))
}

// converse sends on one connection until it ends.
func (s *Stream) converse(ctx context.Context, n *netns.Namespace) {
	conn, err := DialFrom(ctx, n, "tcp", unusedSource(s.target.Addr()), s.target.String())
	if err != nil {
		return
	}
	s.mu.Lock()
	s.conn = conn
	s.mu.Unlock()
	var reading sync.WaitGroup
	ctx, stop := context.WithCancel(ctx)
	reading.Go(func() {
		s.hear(conn)
		stop()
	})
	_ = s.send(ctx, conn, func(error) bool { return false }) // the next connection follows
	stop()
	_ = conn.Close() // ends hear
	reading.Wait()
}

// send sends until the context ends, or an error that it does not survive.
func (s *Stream) send(ctx context.Context, to io.Writer, survives func(error) bool) error {
	tick := time.NewTicker(streamPause)
	defer tick.Stop()
	for ctx.Err() == nil {
		if _, err := to.Write([]byte("?\n")); err != nil && !survives(err) {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	return nil
}

// listen hears answers to datagrams.
func (s *Stream) listen(conn net.Conn) {
	buffer := make([]byte, 256)
	for {
		size, err := conn.Read(buffer)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		answer, parseErr := ParseAnswer(string(buffer[:size]))
		if err != nil || parseErr != nil {
			continue // an earlier datagram was refused
		}
		s.heard(answer.Backend)
	}
}

// hear hears the backend's greeting on a connection, and then the lines that it sends back.
func (s *Stream) hear(conn net.Conn) {
	lines := bufio.NewReader(conn)
	greeting, err := lines.ReadString('\n')
	answer, parseErr := ParseAnswer(greeting)
	for err == nil && parseErr == nil {
		s.heard(answer.Backend)
		_, err = lines.ReadString('\n')
	}
}

func (s *Stream) heard(backend string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.came = time.Now(); backend != s.last {
		s.last, s.changed = backend, s.came
	}
}

// Answers returns the backend that answered last, when its first answer in a row came, and when its last one did.
func (s *Stream) Answers() (backend string, since, last time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last, s.changed, s.came
}

// Local returns the address of the socket; the zero address before the first connection.
func (s *Stream) Local() netip.AddrPort {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn == nil {
		return netip.AddrPort{}
	}
	local, _ := netip.ParseAddrPort(s.conn.LocalAddr().String()) // of TCP or UDP, always one
	return local
}

// String names both ends.
func (s *Stream) String() string {
	return fmt.Sprintf("%s stream from %s to %s", s.protocol, s.Local(), s.target)
}

// Close ends the stream.
func (s *Stream) Close() error {
	s.stop()
	s.mu.Lock()
	conn := s.conn
	s.mu.Unlock()
	var err error
	if conn != nil {
		if err = conn.Close(); errors.Is(err, net.ErrClosed) {
			err = nil // a TCP connection that had ended
		}
	}
	s.running.Wait()
	return err
}

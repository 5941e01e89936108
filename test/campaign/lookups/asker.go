// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/service"
)

// interval is the time between two datagrams of one socket.
const interval = 5 * time.Millisecond

// asker is a client of the probed Service that keeps one socket and keeps sending, whether it gets
// answers or not. So its packets keep the conntrack entry alive that the first of them made.
type asker struct {
	name   string
	client netip.AddrPort
	family service.Family
	conn   net.Conn
	done   chan struct{}

	mu sync.Mutex
	// answered is when the last datagram was sent that has an answer, strayed when the last one was
	// sent that left the node untranslated.
	answered, strayed time.Duration
}

// newAsker opens a socket and starts to send.
func newAsker(ctx context.Context, from *netns.Namespace, to netip.Addr) (*asker, error) {
	conn, err := from.DialContext(ctx, "udp", netip.AddrPortFrom(to, askPort).String())
	if err != nil {
		return nil, err
	}
	client := conn.LocalAddr().(*net.UDPAddr).AddrPort()
	a := &asker{
		name:   fmt.Sprintf("%s to %v from %s", client, to, from.Name()),
		client: client, family: service.FamilyOf(to), conn: conn, done: make(chan struct{}),
	}
	go a.send()
	go a.receive()
	return a, nil
}

func (a *asker) close() error {
	close(a.done)
	return a.conn.Close()
}

// send sends until the socket is closed. The text of a datagram is when it was sent, in microseconds,
// as in the packets of a prober, and then in full.
func (a *asker) send() {
	ticks := time.NewTicker(interval)
	defer ticks.Stop()
	question := make([]byte, 12)
	for {
		sent := time.Since(epoch)
		binary.BigEndian.PutUint32(question, uint32(sent/time.Microsecond))
		binary.BigEndian.PutUint64(question[4:], uint64(sent))
		_, _ = a.conn.Write(question) // an earlier datagram may have been rejected
		select {
		case <-ticks.C:
		case <-a.done:
			return
		}
	}
}

// receive takes answers until the socket is closed.
func (a *asker) receive() {
	answer := make([]byte, 12)
	for {
		n, err := a.conn.Read(answer)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil || n != len(answer) {
			continue // a rejection of an earlier datagram
		}
		a.mu.Lock()
		a.answered = max(a.answered, time.Duration(binary.BigEndian.Uint64(answer[4:])))
		a.mu.Unlock()
	}
}

func (a *asker) state() (answered, strayed time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.answered, a.strayed
}

// isWrong reports whether a recent datagram left the node untranslated, or none has an answer.
func (a *asker) isWrong() bool {
	answered, strayed := a.state()
	since := time.Since(epoch) - right
	return strayed > since || answered < since
}

// strays notes what leaves the node untranslated, for the sockets that it came from.
type strays struct {
	mu     sync.Mutex
	askers map[netip.AddrPort]*asker
}

func (s *strays) put(a *asker) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.askers[a.client] = a
}

func (s *strays) remove(a *asker) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.askers, a.client)
}

// watch reads what comes beyond the node until the program ends.
func (s *strays) watch(fd int) {
	frame := make([]byte, 2048)
	for {
		n, err := unix.Read(fd, frame)
		if err != nil {
			continue
		}
		seen, ok := parse(frame[:n], time.Since(epoch))
		if !ok {
			continue
		}
		s.mu.Lock()
		a := s.askers[seen.client]
		s.mu.Unlock()
		if a == nil {
			continue
		}
		a.mu.Lock()
		a.strayed = max(a.strayed, seen.sent)
		a.mu.Unlock()
	}
}

// echo answers each datagram with its text, until the socket is closed.
func echo(socket net.PacketConn) {
	buffer := make([]byte, 64)
	for {
		n, from, err := socket.ReadFrom(buffer)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			_, _ = socket.WriteTo(buffer[:n], from)
		}
	}
}

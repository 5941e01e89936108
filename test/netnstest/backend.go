// SPDX-License-Identifier: Apache-2.0

package netnstest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-proxy/sluice/internal/host/netns"
)

// Backend stands behind a Service. It answers each client with its own
// name and the client's address as it sees it:
//
//   - TCP: on each connection the line "name clientIP:port", then every line received, sent back,
//     until the client closes;
//   - UDP: for each datagram one datagram "name clientIP:port".
//
// Invariant: between StartBackend and Close both sockets are open on the same address and port.
type Backend struct {
	name string
	addr netip.AddrPort
	tcp  net.Listener
	udp  *net.UDPConn

	running sync.WaitGroup // the two serving loops and one goroutine per connection
	thinks  atomic.Int64   // how long, before it answers a datagram

	mu     sync.Mutex
	closed bool
	conns  map[net.Conn]struct{}
}

// StartBackend serves at addr inside the namespace, over TCP and UDP. Port 0 picks a free one. The
// address should be a specific one: from a wildcard socket the kernel may answer a datagram from
// another address than the one it was sent to. Without a name, addr is the wildcard address of a family, and
// the backend answers from and with the address that the client reached.
func StartBackend(n *netns.Namespace, name string, addr netip.AddrPort) (*Backend, error) {
	family := ""
	if name == "" {
		family = map[bool]string{true: "4", false: "6"}[addr.Addr().Is4()]
	}
	tcp, udp, err := listenBoth(n, family, addr)
	if err != nil {
		return nil, fmt.Errorf("backend %s: %w", name, err)
	}
	b := &Backend{
		name:  name,
		addr:  tcp.Addr().(*net.TCPAddr).AddrPort(), // a TCP listener's address is always this type
		tcp:   tcp,
		udp:   udp.(*net.UDPConn), // and so for UDP
		conns: make(map[net.Conn]struct{}),
	}
	if name == "" {
		if err := wantDestination(b.udp, addr.Addr().Is6()); err != nil {
			return nil, errors.Join(fmt.Errorf("backend %s: %w", name, err), tcp.Close(), udp.Close())
		}
	}
	b.running.Go(b.serveTCP)
	b.running.Go(b.serveUDP)
	return b, nil
}

// listenBoth opens the two sockets on one port. When the port is for the kernel to choose, the one
// it picks for TCP may be taken for UDP, so that is tried a few times.
func listenBoth(n *netns.Namespace, family string, addr netip.AddrPort) (net.Listener, net.PacketConn, error) {
	attempts := 1
	if addr.Port() == 0 {
		attempts = 10
	}
	var lastErr error
	for range attempts {
		tcp, err := n.Listen("tcp"+family, addr.String())
		if err != nil {
			return nil, nil, err
		}
		udp, err := n.ListenPacket("udp"+family, tcp.Addr().String())
		if err == nil {
			return tcp, udp, nil
		}
		lastErr = errors.Join(err, tcp.Close())
	}
	return nil, nil, lastErr
}

// Think delays the answers to later datagrams.
func (b *Backend) Think(d time.Duration) { b.thinks.Store(int64(d)) }

// Name returns the name the backend answers with.
func (b *Backend) Name() string { return b.name }

// Addr returns the address and port it serves at.
func (b *Backend) Addr() netip.AddrPort { return b.addr }

// Close stops serving, cuts open connections and returns when every goroutine has ended.
func (b *Backend) Close() error {
	b.mu.Lock()
	b.closed = true
	errs := []error{b.tcp.Close(), b.udp.Close()}
	for conn := range b.conns {
		// An error here means the client was faster; its goroutine reports nothing either.
		_ = conn.Close()
	}
	b.mu.Unlock()
	b.running.Wait()
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("backend %s: close: %w", b.name, err)
	}
	return nil
}

func (b *Backend) serveTCP() {
	for {
		conn, err := b.tcp.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			continue // one connection was lost before it was accepted; the next may be fine
		}
		if b.adopt(conn) {
			b.running.Go(func() { b.talk(conn) })
		}
	}
}

// adopt remembers a connection for Close, and refuses it when Close was there first.
func (b *Backend) adopt(conn net.Conn) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		_ = conn.Close() // never served, nothing can be lost
		return false
	}
	b.conns[conn] = struct{}{}
	return true
}

// talk serves one connection. Errors end it and reach the client as the end of its stream.
func (b *Backend) talk(conn net.Conn) {
	defer func() {
		b.mu.Lock()
		delete(b.conns, conn)
		b.mu.Unlock()
		_ = conn.Close() // the client has left, or Close has closed it
	}()
	if _, err := io.WriteString(conn, b.greeting(conn.LocalAddr().(*net.TCPAddr).AddrPort().Addr(), conn.RemoteAddr())+"\n"); err != nil {
		return
	}
	lines := bufio.NewReader(conn)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return
		}
		if _, err := io.WriteString(conn, line); err != nil {
			return
		}
	}
}

func (b *Backend) serveUDP() {
	// The kernel cuts off the rest of a datagram, which says nothing.
	question, control := make([]byte, 1), make([]byte, 64)
	for {
		_, size, _, client, err := b.udp.ReadMsgUDPAddrPort(question, control)
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			continue // an earlier answer was refused by its client; others still ask
		}
		// A client that has left is no reason to stop; the loop ends on the next read after Close.
		reached, from := destination(control[:size])
		answer := func() {
			_, _, _ = b.udp.WriteMsgUDPAddrPort([]byte(b.greeting(reached, net.UDPAddrFromAddrPort(client))), from, client)
		}
		if thinks := time.Duration(b.thinks.Load()); thinks > 0 {
			time.AfterFunc(thinks, answer)
		} else {
			answer()
		}
	}
}

func (b *Backend) greeting(reached netip.Addr, client net.Addr) string {
	if b.name == "" {
		return reached.String() + " " + client.String()
	}
	return b.name + " " + client.String()
}

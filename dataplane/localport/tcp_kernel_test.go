// SPDX-License-Identifier: Apache-2.0

package localport_test

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/localport"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/netnstest"
)

// forward forwards a node port on the loopback address to the node's own address, and returns the
// object.
func (w *world) forward(protocol service.Protocol) *dataplane.Object {
	w.Helper()
	o := w.listener(protocol, nodePort, netip.AddrPortFrom(w.own(), nodePort))
	w.write(w.want(o))
	return o
}

// TestKernelTCP_PassesHalfCloseOn: the end of each direction is passed on: a client that finished sending gets the
// whole answer, and a server that finished sending still receives.
func TestKernelTCP_PassesHalfCloseOn(t *testing.T) {
	eachFamily(t, localport.Config{}, func(w *world) {
		rest := make(chan string, 1)
		w.serve(netip.AddrPortFrom(w.own(), nodePort), func(conn *net.TCPConn) {
			question, err := io.ReadAll(conn)
			if err != nil {
				w.Error(err)
			}
			if _, err := conn.Write(bytes.ToUpper(question)); err != nil {
				w.Error(err)
			}
		})
		w.serve(netip.AddrPortFrom(w.second(), nodePort), func(conn *net.TCPConn) {
			if _, err := io.WriteString(conn, "all"); err != nil {
				w.Error(err)
			}
			if err := conn.CloseWrite(); err != nil {
				w.Error(err)
			}
			text, err := io.ReadAll(conn)
			if err != nil {
				w.Error(err)
			}
			rest <- string(text)
		})
		o := w.forward(service.TCP)
		client := w.dial(nodePort)
		_, err := io.WriteString(client, "question")
		check(w, err)
		check(w, client.CloseWrite())
		if got := w.readAll(client); got != "QUESTION" {
			w.Errorf("got %q", got)
		}

		o.Body = "to " + netip.AddrPortFrom(w.second(), nodePort).String()
		w.write(w.want(o))
		client = w.dial(nodePort)
		if got := w.readAll(client); got != "all" {
			w.Errorf("got %q", got)
		}
		_, err = io.WriteString(client, "later")
		check(w, err)
		check(w, client.Close())
		if got := <-rest; got != "later" {
			w.Errorf("after the server's end came %q", got)
		}
		w.await("connections end", func() bool { return w.writer.Stats().Connections.Load() == 0 })
		if s := w.writer.Stats(); s.Bytes.ToTargets.Load() != 8+5 || s.Bytes.ToClients.Load() != 8+3 || s.ConnectionsAccepted.Load() != 2 {
			w.Errorf("counted %+v", s)
		}
	})
}

// TestKernelTCP_CarriesMuchBothWays: a connection carries 8 MiB in both directions at the same time.
func TestKernelTCP_CarriesMuchBothWays(t *testing.T) {
	w := newWorld(t, service.IPv4, localport.Config{})
	w.serve(netip.AddrPortFrom(w.own(), nodePort), func(conn *net.TCPConn) {
		if _, err := io.Copy(conn, conn); err != nil {
			t.Error(err)
		}
	})
	w.forward(service.TCP)
	sent := make([]byte, 8<<20)
	rand.Read(sent)
	client := w.dial(nodePort)
	go func() {
		if _, err := client.Write(sent); err != nil {
			t.Error(err)
		}
		if err := client.CloseWrite(); err != nil {
			t.Error(err)
		}
	}()
	if got := w.readAll(client); got != string(sent) {
		t.Errorf("%d bytes came back of %d, or others", len(got), len(sent))
	}
}

// expectReset connects to a node port on the loopback address and sends
// something. The connection must fail without data. The reset may come before the client knows
// that it was connected.
func (w *world) expectReset(port uint16, when string) {
	w.Helper()
	conn, err := w.node.DialContext(w.Context(), "tcp", w.listen(port).String())
	if err == nil {
		defer conn.Close() // it has ended
		check(w, conn.SetDeadline(time.Now().Add(patience)))
		if _, err = conn.Write([]byte("?")); err == nil { // the kernel tells a reset once
			var text []byte
			if text, err = io.ReadAll(conn); len(text) > 0 {
				w.Errorf("%s: the client read %q", when, text)
			}
		}
	}
	if !errors.Is(err, unix.ECONNRESET) {
		w.Errorf("%s: the client saw %v, want a reset", when, err)
	}
}

// TestKernelTCP_FailuresAreResets: a client is reset when the target refuses, does not respond or resets the
// connection.
func TestKernelTCP_FailuresAreResets(t *testing.T) {
	eachFamily(t, localport.Config{DialTimeout: 500 * time.Millisecond}, func(w *world) {
		o := w.forward(service.TCP)
		w.expectReset(nodePort, "the target refuses")

		// No host has the address, and its route leads to the loopback interface.
		nobody := map[service.Family]string{service.IPv4: "203.0.113.1", service.IPv6: "2001:db8:ffff::1"}[w.family]
		check(w, w.node.AddLinkRoute(netip.PrefixFrom(addr(nobody), addr(nobody).BitLen()), "lo"))
		o.Body = "to " + netip.AddrPortFrom(addr(nobody), 1).String()
		w.write(w.want(o))
		w.expectReset(nodePort, "the target is silent")

		w.serve(netip.AddrPortFrom(w.own(), nodePort), func(conn *net.TCPConn) {
			_, err := conn.Read(make([]byte, 1))
			if err != nil {
				w.Error(err)
			}
			if err := conn.SetLinger(0); err != nil {
				w.Error(err)
			}
		})
		o.Body = "to " + netip.AddrPortFrom(w.own(), nodePort).String()
		w.write(w.want(o))
		w.expectReset(nodePort, "the target resets")
		w.await("connections end", func() bool { return w.writer.Stats().Connections.Load() == 0 })
		if s := w.writer.Stats(); s.ConnectionsUnreachable.Load() != 2 || s.ConnectionsAccepted.Load() != 3 || s.ConnectionsRefused.Load() != 0 {
			w.Errorf("counted %+v", s)
		}
	})
}

// TestKernelTCP_LeavingClientEndsConnection: when a client resets its connection, the target sees a reset as well.
func TestKernelTCP_LeavingClientEndsConnection(t *testing.T) {
	w := newWorld(t, service.IPv4, localport.Config{})
	seen := make(chan error, 1)
	w.serve(netip.AddrPortFrom(w.own(), nodePort), func(conn *net.TCPConn) {
		_, err := io.Copy(io.Discard, conn)
		seen <- err
	})
	w.forward(service.TCP)
	client := w.dial(nodePort)
	_, err := io.WriteString(client, "half a")
	check(t, err)
	check(t, client.SetLinger(0))
	check(t, client.Close())
	if err := <-seen; !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("the target saw %v, want a reset", err)
	}
}

// TestKernelTCP_ConnectionOutlivesListener: an established connection outlives its listener and a change of its target,
// but ends with the writer.
func TestKernelTCP_ConnectionOutlivesListener(t *testing.T) {
	eachFamily(t, localport.Config{}, func(w *world) {
		first := w.backend("first", netip.AddrPortFrom(w.own(), nodePort))
		second := w.backend("second", netip.AddrPortFrom(w.second(), nodePort))
		o := w.forward(service.TCP)
		session, err := netnstest.Connect(w.Context(), w.node, w.listen(nodePort))
		check(w, err)
		o.Body = "to " + second.Addr().String()
		w.write(w.want(o))
		w.expectAnswer("tcp", nodePort, "second")
		check(w, session.Echo(w.Context(), "after the target has changed"))
		w.write(w.gone(o))
		w.expectRefused("tcp", nodePort)
		check(w, session.Echo(w.Context(), "after the listener has gone"))
		w.write(w.want(o))
		w.expectAnswer("tcp", nodePort, "second")
		check(w, session.Echo(w.Context(), "after it has come back"))
		check(w, w.writer.Close())
		if err := session.Echo(w.Context(), "late"); !errors.Is(err, unix.ECONNRESET) && !errors.Is(err, unix.EPIPE) {
			w.Errorf("after the end: %v", err)
		}
		check(w, session.Close())
		check(w, first.Close())
		check(w, second.Close())
	})
}

// TestKernelTCP_Bounds: a client beyond the limit of a listener or of all listeners is reset, and a new client is
// served when another one has left.
func TestKernelTCP_Bounds(t *testing.T) {
	w := newWorld(t, service.IPv4, localport.Config{Connections: 3, ConnectionsPerListener: 2})
	backend := w.backend("first", netip.AddrPortFrom(w.own(), nodePort))
	w.write(w.want(w.listener(service.TCP, nodePort, backend.Addr())), w.want(w.listener(service.TCP, 30081, backend.Addr())))
	for range 2 {
		session, err := netnstest.Connect(t.Context(), w.node, w.listen(nodePort))
		check(t, err)
		t.Cleanup(func() { check(t, session.Close()) })
	}
	w.expectReset(nodePort, "beyond the bound of a listener")
	last, err := netnstest.Connect(t.Context(), w.node, w.listen(30081))
	check(t, err)
	w.expectReset(30081, "beyond the bound of all")
	if s := w.writer.Stats(); s.Connections.Load() != 3 || s.ConnectionsRefused.Load() != 2 || s.ConnectionsAccepted.Load() != 5 {
		t.Errorf("counted %+v", s)
	}
	check(t, last.Close())
	w.await("a place is free", func() bool { return w.writer.Stats().Connections.Load() == 2 })
	w.expectAnswer("tcp", 30081, "first")
	check(t, backend.Close())
}

// ways are the addresses that a benchmark connects to: the target itself, and the listener that
// forwards to it.
func (w *world) ways() map[string]string {
	return map[string]string{
		"direct": netip.AddrPortFrom(w.own(), nodePort).String(), "forwarded": w.listen(nodePort).String(),
	}
}

// connectTo dials on the current thread, which must be on the node.
func connectTo(b *testing.B, network, address string) net.Conn {
	b.Helper()
	conn, err := net.Dial(network, address)
	check(b, err)
	return conn
}

// onNode runs a benchmark's loop on a thread of the node.
func (w *world) onNode(b *testing.B, loop func()) {
	b.Helper()
	check(b, w.node.Do(func() error {
		loop()
		return nil
	}))
}

// BenchmarkTCPConnection measures a connection with one byte each way.
func BenchmarkTCPConnection(b *testing.B) {
	w := newWorld(b, service.IPv4, localport.Config{})
	w.serve(netip.AddrPortFrom(w.own(), nodePort), func(conn *net.TCPConn) { _, _ = io.Copy(conn, conn) })
	w.forward(service.TCP)
	for name, address := range w.ways() {
		b.Run(name, func(b *testing.B) {
			w.onNode(b, func() {
				one := make([]byte, 1)
				for b.Loop() {
					conn := connectTo(b, "tcp", address)
					_, err := conn.Write(one)
					check(b, err)
					_, err = io.ReadFull(conn, one)
					check(b, err)
					check(b, conn.Close())
				}
			})
		})
	}
}

// BenchmarkTCPStream measures 1 MiB one way over an open connection.
func BenchmarkTCPStream(b *testing.B) {
	const size = 1 << 20
	w := newWorld(b, service.IPv4, localport.Config{})
	w.serve(netip.AddrPortFrom(w.own(), nodePort), func(conn *net.TCPConn) {
		buffer := make([]byte, size)
		for {
			if _, err := io.ReadFull(conn, buffer); err != nil {
				return
			}
			if _, err := conn.Write(buffer[:1]); err != nil {
				return
			}
		}
	})
	w.forward(service.TCP)
	for name, address := range w.ways() {
		b.Run(name, func(b *testing.B) {
			w.onNode(b, func() {
				conn, buffer := connectTo(b, "tcp", address), make([]byte, size)
				b.SetBytes(size)
				for b.Loop() {
					_, err := conn.Write(buffer)
					check(b, err)
					_, err = io.ReadFull(conn, buffer[:1])
					check(b, err)
				}
				check(b, conn.Close())
			})
		})
	}
}

// BenchmarkUDPQuestion measures a datagram and its answer.
func BenchmarkUDPQuestion(b *testing.B) {
	w := newWorld(b, service.IPv4, localport.Config{})
	w.datagramServer(netip.AddrPortFrom(w.own(), nodePort), func(question []byte, _ net.Addr) []byte { return question })
	w.forward(service.UDP)
	for name, address := range w.ways() {
		b.Run(name, func(b *testing.B) {
			w.onNode(b, func() {
				conn, buffer := connectTo(b, "udp", address), make([]byte, 64)
				for b.Loop() {
					_, err := conn.Write(buffer)
					check(b, err)
					_, err = conn.Read(buffer)
					check(b, err)
				}
				check(b, conn.Close())
			})
		})
	}
}

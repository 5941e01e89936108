package localport_test

import (
	"io"
	"net"
	"net/netip"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane/localport"
	"github.com/sluice-proxy/sluice/service"
)

// ways are the addresses at which a benchmark asks: the target itself, and the
// listener that forwards there.
func (w *world) ways() map[string]string {
	return map[string]string{
		"direct": netip.AddrPortFrom(w.own(), nodePort).String(), "forwarded": w.listen(nodePort).String(),
	}
}

// connectTo dials on the present thread, which has to be on the node.
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

// BenchmarkTCPConnection is a connection with one byte each way.
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

// BenchmarkTCPStream is 1 MiB over a connection that is open already, one way.
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

// BenchmarkUDPQuestion is a datagram and its answer.
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

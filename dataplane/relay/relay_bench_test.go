// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/netnstest"
)

var benchAt = netip.MustParseAddrPort("127.0.0.1:30080")

// startBench forwards to a target in a namespace of its own.
func startBench(b *testing.B, protocol service.Protocol, listen func(inside func(func() error) error) netip.AddrPort) func(network string) net.Conn {
	node := netnstest.New(b, "node")
	r := New(Config{Inside: node.Do})
	l, err := r.Open(Place{protocol, benchAt}, Options{Balancer: Fixed(listen(node.Do))})
	if err != nil {
		b.Fatal(err)
	}
	l.Start(func() { b.Error("died") })
	b.Cleanup(func() { l.Close(); r.Close() })
	return func(network string) net.Conn {
		var conn net.Conn
		if err := node.Do(func() (err error) {
			conn, err = net.Dial(network, benchAt.String())
			return err
		}); err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = conn.Close() })
		return conn
	}
}

// tcpTarget serves each connection in a goroutine.
func tcpTarget(b *testing.B, serve func(net.Conn)) func(inside func(func() error) error) netip.AddrPort {
	return func(inside func(func() error) error) (at netip.AddrPort) {
		if err := inside(func() error {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				return err
			}
			b.Cleanup(func() { _ = l.Close() })
			at = l.Addr().(*net.TCPAddr).AddrPort()
			go func() {
				for {
					conn, err := l.Accept()
					if err != nil {
						return
					}
					go serve(conn)
				}
			}()
			return nil
		}); err != nil {
			b.Fatal(err)
		}
		return at
	}
}

// BenchmarkTCP_Bulk measures one connection that only sends.
func BenchmarkTCP_Bulk(b *testing.B) {
	conn := startBench(b, service.TCP, tcpTarget(b, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }))("tcp")
	buffer := make([]byte, 256<<10)
	b.SetBytes(int64(len(buffer)))
	for b.Loop() {
		if _, err := conn.Write(buffer); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkTCP_RequestResponse measures one connection with one small request at a time.
func BenchmarkTCP_RequestResponse(b *testing.B) {
	conn := startBench(b, service.TCP, tcpTarget(b, func(c net.Conn) { _, _ = io.Copy(c, c) }))("tcp")
	buffer := make([]byte, 64)
	for b.Loop() {
		if _, err := conn.Write(buffer); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(conn, buffer); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkUDP measures one client, and 32 clients, with an echo server. It reports the datagrams that came back.
func BenchmarkUDP(b *testing.B) {
	for name, clients := range map[string]int{"one client": 1, "32 clients": 32} {
		b.Run(name, func(b *testing.B) { benchUDP(b, clients) })
	}
}

func benchUDP(b *testing.B, clients int) {
	const underWay = 32
	dial := startBench(b, service.UDP, func(inside func(func() error) error) (at netip.AddrPort) {
		if err := inside(func() error {
			l, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
			if err != nil {
				return err
			}
			b.Cleanup(func() { _ = l.Close() })
			at = l.LocalAddr().(*net.UDPAddr).AddrPort()
			go func() {
				buffer := make([]byte, 2048)
				for {
					n, from, err := l.ReadFromUDPAddrPort(buffer)
					if err != nil {
						return
					}
					_, _ = l.WriteToUDPAddrPort(buffer[:n], from)
				}
			}()
			return nil
		}); err != nil {
			b.Fatal(err)
		}
		return at
	})
	var conns []net.Conn
	for range clients {
		conns = append(conns, dial("udp"))
	}
	buffer := make([]byte, 1200)
	b.SetBytes(underWay * int64(len(buffer)))
	lost := 0
	for b.Loop() {
		for i := range underWay {
			if _, err := conns[i%clients].Write(buffer); err != nil {
				b.Fatal(err)
			}
		}
		for i := range underWay {
			c := conns[i%clients]
			_ = c.SetReadDeadline(time.Now().Add(time.Second))
			if _, err := c.Read(buffer); errors.Is(err, os.ErrDeadlineExceeded) {
				lost++
			} else if err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(lost)/float64(b.N), "lost/op")
}

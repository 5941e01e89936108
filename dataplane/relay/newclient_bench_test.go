// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/netnstest"
)

// BenchmarkUDP_NewClient measures a datagram and its answer for a client without a session: below the session limit,
// and at the limit, where the client replaces another one.
func BenchmarkUDP_NewClient(b *testing.B) {
	const sessions = 1 << 14
	for name, before := range map[string]int{"below the limit": 0, "at the limit": sessions} {
		b.Run(name, func(b *testing.B) {
			ask := startNewClients(b, sessions)
			for i := range before {
				ask(i)
			}
			i := before
			for b.Loop() {
				ask(i)
				i++
			}
		})
	}
}

// startNewClients returns a function that asks from another address for each number.
func startNewClients(b *testing.B, sessions int) (ask func(i int)) {
	node := netnstest.New(b, "node")
	echo := startEcho(b, node)
	r := New(Config{Inside: node.Do, Sessions: 4 * sessions, SessionsPerListener: sessions})
	l, err := r.Open(Place{service.UDP, benchAt}, Options{Balancer: Fixed(echo)})
	if err != nil {
		b.Fatal(err)
	}
	l.Start(func() { b.Error("died") })
	b.Cleanup(func() { l.Close(); r.Close() })
	buffer := make([]byte, 64)
	return func(i int) {
		if err := node.Do(func() error {
			from := &net.UDPAddr{IP: net.IPv4(127, byte(1+i>>16), byte(i>>8), byte(i))}
			client, err := net.DialUDP("udp4", from, net.UDPAddrFromAddrPort(benchAt))
			if err != nil {
				return err
			}
			defer client.Close() // nothing is left to lose
			_ = client.SetDeadline(time.Now().Add(5 * time.Second))
			if _, err := client.Write([]byte("?")); err != nil {
				return err
			}
			_, err = client.Read(buffer)
			return err
		}); err != nil {
			b.Fatal(err)
		}
	}
}

// startEcho answers each datagram with itself.
func startEcho(t testing.TB, node *netns.Namespace) netip.AddrPort {
	socket, err := node.ListenPacket("udp", "127.0.0.1:5353")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = socket.Close() })
	go func() {
		buffer := make([]byte, 2048)
		for {
			size, from, err := socket.ReadFrom(buffer)
			if err != nil {
				return
			}
			_, _ = socket.WriteTo(buffer[:size], from)
		}
	}()
	return socket.LocalAddr().(*net.UDPAddr).AddrPort()
}

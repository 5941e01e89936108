// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// TestSockets_TakenOverBySuccessor: after a takeover of the sockets, the new owner serves waiting and later
// connections, and gets further datagrams of open sessions.
func TestSockets_TakenOverBySuccessor(t *testing.T) {
	former, next := echo(t, "former"), echo(t, "next")
	pool := &Sockets{}
	first, second := New(Config{}), New(Config{Sockets: pool})
	t.Cleanup(second.Close)
	var places []Place
	for _, protocol := range []service.Protocol{service.TCP, service.UDP} {
		l, err := first.Open(Place{protocol, netip.MustParseAddrPort("127.0.0.1:0")}, Options{Balancer: Fixed(former)})
		check(t, err)
		l.Start(func() { t.Error("it died") })
		check(t, l.Share(pool))
	}
	for _, file := range pool.Files() {
		p, err := PlaceOf(file)
		check(t, err)
		places = append(places, p)
		pool.Put(p, file)
	}
	if len(places) != 2 || places[0].Protocol == places[1].Protocol {
		t.Fatalf("places %v", places)
	}
	session, err := net.Dial("udp", placeOf(t, places, service.UDP))
	check(t, err)
	ask(t, session, "former")
	first.Each((*Listener).Drain)
	waiting, err := net.Dial("tcp", placeOf(t, places, service.TCP))
	check(t, err)
	for _, p := range places {
		l, err := second.Open(p, Options{Balancer: Fixed(next)})
		check(t, err)
		l.Start(func() { t.Error("it died") })
	}
	ask(t, waiting, "next")
	ask(t, session, "next")
	first.Close()
	again, err := net.Dial("tcp", placeOf(t, places, service.TCP))
	check(t, err)
	ask(t, again, "next")
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func placeOf(t *testing.T, places []Place, protocol service.Protocol) string {
	t.Helper()
	for _, p := range places {
		if p.Protocol == protocol {
			return p.At.String()
		}
	}
	t.Fatalf("no place of %v in %v", protocol, places)
	return ""
}

// echo answers with its name, over TCP and UDP at the same port.
func echo(t *testing.T, name string) netip.AddrPort {
	t.Helper()
	for range 20 { // the port may be taken for the other protocol
		l, err := net.Listen("tcp", "127.0.0.1:0")
		check(t, err)
		u, err := net.ListenPacket("udp", l.Addr().String())
		if err != nil {
			check(t, l.Close())
			continue
		}
		t.Cleanup(func() { check(t, l.Close()); check(t, u.Close()) })
		go func() {
			for c, err := l.Accept(); err == nil; c, err = l.Accept() {
				go func() {
					_, _ = c.Read(make([]byte, 1)) // a client that has gone is in the test's own errors
					_, _ = io.WriteString(c, name)
					_ = c.Close()
				}()
			}
		}()
		go func() {
			b := make([]byte, 16)
			for _, from, err := u.ReadFrom(b); err == nil; _, from, err = u.ReadFrom(b) {
				_, _ = u.WriteTo([]byte(name), from)
			}
		}()
		return l.Addr().(*net.TCPAddr).AddrPort()
	}
	t.Fatal("no port is free for both protocols")
	return netip.AddrPort{}
}

func ask(t *testing.T, c net.Conn, want string) {
	t.Helper()
	check(t, c.SetDeadline(time.Now().Add(testenv.Patience)))
	_, err := c.Write([]byte("?"))
	check(t, err)
	b := make([]byte, 16)
	n, err := c.Read(b)
	if err != nil || string(b[:n]) != want {
		t.Errorf("answered %q, %v, want %s", b[:n], err, want)
	}
}

// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/netnstest"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// TestSession_IdleReplacedBeforeActive: at the session limit, new sessions replace idle sessions before active ones,
// even if the active ones are the oldest.
func TestSession_IdleReplacedBeforeActive(t *testing.T) {
	const sessions, active = 64, 2 * candidatesMax
	node := netnstest.New(t, "node")
	r := New(Config{Inside: node.Do, SessionsPerListener: sessions})
	l, err := r.Open(Place{service.UDP, benchAt}, Options{Balancer: Fixed(startEcho(t, node))})
	if err != nil {
		t.Fatal(err)
	}
	l.Start(func() { t.Error("died") })
	t.Cleanup(func() { l.Close(); r.Close() })
	var clients []net.Conn
	ask := func(c net.Conn) {
		t.Helper()
		_ = c.SetDeadline(time.Now().Add(testenv.Patience))
		if _, err := c.Write([]byte("?")); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(make([]byte, 16)); err != nil {
			t.Fatal(err)
		}
	}
	open := func(n int) {
		t.Helper()
		for range n {
			c, err := node.DialContext(t.Context(), "udp", benchAt.String())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.Close() })
			ask(c)
			clients = append(clients, c)
		}
	}
	open(sessions)
	table := &l.server.(*udpServer).sessions
	for _, c := range clients {
		table.get(c.LocalAddr().(*net.UDPAddr).AddrPort()).moved.Add(-int64(touchEvery))
	}
	for _, c := range clients[:active] {
		ask(c)
	}
	open(sessions - active)
	for i, c := range clients {
		has := table.get(c.LocalAddr().(*net.UDPAddr).AddrPort()) != nil
		if idle := i >= active && i < sessions; has == idle {
			t.Errorf("client %d of %d has a session: %v, want %v", i, len(clients), has, !idle)
		}
	}
}

// TestSession_Expiry: a session expires like a conntrack flow: it lives longer once it was answered, but only if it was
// active for more than two seconds.
func TestSession_Expiry(t *testing.T) {
	began := time.Now()
	for _, c := range []struct {
		replied bool
		active  time.Duration
		want    time.Duration
	}{
		{false, 0, 30 * time.Second}, {true, 2 * time.Second, 32 * time.Second}, {false, time.Minute, 90 * time.Second},
		{true, 2*time.Second + 1, 122*time.Second + 1}, {true, time.Minute, 3 * time.Minute},
	} {
		s := &session{server: &udpServer{Relay: New(Config{}), began: began}, Connection: Connection{Began: began}}
		s.replied.Store(c.replied)
		s.active.Store(int64(c.active))
		if got := s.expiry().Sub(began); got != c.want {
			t.Errorf("replied %t, last active after %v: expires after %v, want %v", c.replied, c.active, got, c.want)
		}
	}
}

// TestSession_UndialableTargetSkipped: a session whose first target cannot be dialed goes to another target.
func TestSession_UndialableTargetSkipped(t *testing.T) {
	node := netnstest.New(t, "node")
	echo := startEcho(t, node)
	var failed []error
	choice := two{Fixed(echo), netip.MustParseAddrPort("192.0.2.1:53"), &failed} // there is no route to it
	r := New(Config{Inside: node.Do})
	s, err := newUDPServer(r, Place{service.UDP, benchAt}, Options{Balancer: choice})
	if err != nil {
		t.Fatal(err)
	}
	session := s.session(netip.MustParseAddrPort("127.0.0.1:40000"))
	if session == nil || session.Target != echo || len(failed) != 1 {
		t.Errorf("session %+v, failed %v", session, failed)
	}
	s.sessions.closeAll()
	r.Close()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// two has two targets, and notes what fails.
type two struct {
	Fixed
	first  netip.AddrPort
	failed *[]error
}

func (b two) Targets(netip.AddrPort) []netip.AddrPort {
	return []netip.AddrPort{b.first, netip.AddrPort(b.Fixed)}
}
func (b two) Failed(_ netip.AddrPort, err error, _ bool) { *b.failed = append(*b.failed, err) }

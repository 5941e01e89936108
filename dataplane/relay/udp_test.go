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

// TestUDPServer_DatagramAtSessionEnd: a datagram is not lost when its session ends between look-up and use. A new
// session sends it.
func TestUDPServer_DatagramAtSessionEnd(t *testing.T) {
	node := netnstest.New(t, "node")
	received, err := node.ListenPacket("udp", "127.0.0.1:30053")
	if err != nil {
		t.Fatal(err)
	}
	h := New(Config{Inside: node.Do})
	at := received.LocalAddr().(*net.UDPAddr).AddrPort()
	s, err := newUDPServer(h, Place{service.UDP, netip.MustParseAddrPort("127.0.0.1:30080")}, Options{Balancer: Fixed(at)})
	if err != nil {
		t.Fatal(err)
	}
	client := netip.MustParseAddrPort("127.0.0.1:40000")
	ending := s.session(client)
	if err := ending.conn.Close(); err != nil { // the session does not know yet, perhaps
		t.Fatal(err)
	}
	s.sessions.put(ending)
	s.pass(client, []byte("hello"))
	if err := received.SetReadDeadline(time.Now().Add(testenv.Patience)); err != nil {
		t.Fatal(err)
	}
	buffer := make([]byte, 16)
	if size, _, err := received.ReadFrom(buffer); err != nil || string(buffer[:size]) != "hello" {
		t.Errorf("received %q, %v", buffer[:size], err)
	}
	if c := &h.stats; c.DatagramsDropped.Load() != 0 || c.SessionsOpened.Load() != 2 || c.Sessions.Load() != 1 || c.Unanswered.Load() != 1 {
		t.Errorf("counted %+v", c)
	}
	asking := s.sessions.get(client)
	asking.asked()
	asking.answered()
	if left := h.stats.Unanswered.Load(); left != 1 {
		t.Errorf("with one of two questions answered, %d sessions wait for an answer", left)
	}
	s.sessions.closeAll()
	if left := h.stats.Unanswered.Load(); left != 0 {
		t.Errorf("%d sessions that have ended wait for an answer", left)
	}
	h.tasks.close()
	for _, socket := range []net.PacketConn{s.socket, received} {
		if err := socket.Close(); err != nil {
			t.Error(err)
		}
	}
}

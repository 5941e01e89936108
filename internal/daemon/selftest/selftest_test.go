// SPDX-License-Identifier: Apache-2.0

package selftest

import (
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/service"
)

// TestSelfTest_OnlyOwnAnswerCounts: the self-test fails if another process answers, or if the answer does not end.
func TestSelfTest_OnlyOwnAnswerCounts(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() // the test ends
	at := netip.MustParseAddrPort(l.Addr().String())
	own := New(Config{Interval: Interval})
	go own.answer(l)
	if err := own.connect(t.Context(), at); err != nil {
		t.Errorf("its own answer: %v", err)
	}
	if err := New(Config{Interval: Interval}).connect(t.Context(), at); err == nil || !strings.HasSuffix(err.Error(), ": another process answered") {
		t.Errorf("an answer of another process: %v", err)
	}
}

// TestSelfTest_OtherHostUnanswered: only clients on this node get an answer.
func TestSelfTest_OtherHostUnanswered(t *testing.T) {
	for text, want := range map[string]bool{"127.0.0.1:1": true, "[::1]:1": true, "192.0.2.77:1": false, "[2001:db8::77]:1": false} {
		if got := onThisNode(net.TCPAddrFromAddrPort(netip.MustParseAddrPort(text))); got != want {
			t.Errorf("%s is on this node: %t", text, got)
		}
	}
	own, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range own {
		if !onThisNode(&net.TCPAddr{IP: a.(*net.IPNet).IP}) {
			t.Errorf("%v is not on this node", a)
		}
	}
}

// TestSelfTest_PortsHeldTogether: both ports are opened together: they cannot be opened twice, and are free again after
// being closed.
func TestSelfTest_PortsHeldTogether(t *testing.T) {
	ports := otherPorts()
	addr := service.Loopback[service.IPv4]
	for range 2 {
		first, err := open(addr, ports)
		if err != nil {
			t.Fatal(err)
		}
		if second, err := open(addr, ports); err == nil {
			t.Errorf("opened twice: %+v", second)
		}
		(&Test{sockets: service.PerFamily[*sockets]{service.IPv4: first}}).close()
	}
}

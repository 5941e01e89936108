// SPDX-License-Identifier: Apache-2.0

package netnstest

import (
	"errors"
	"io"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// TestBackend_AnswersAndEchoes: a backend answers with its name and the client's address over TCP and UDP, after a
// configured delay, and echoes.
func TestBackend_AnswersAndEchoes(t *testing.T) {
	n := New(t, "n")
	for _, addr := range []string{"127.0.0.1:0", "[::1]:0"} {
		b := Serve(t, n, "web-0", netip.MustParseAddrPort(addr))
		for _, network := range []string{"tcp", "udp"} {
			answer, err := Ask(t.Context(), n, network, b.Addr())
			if err != nil {
				t.Fatal(err)
			}
			if answer.Backend != b.Name() || answer.Client.Addr() != b.Addr().Addr() || answer.Client.Port() == 0 {
				t.Errorf("%s answered %+v", network, answer)
			}
		}
		const thinks = 50 * time.Millisecond
		b.Think(thinks)
		asked := time.Now()
		if _, err := Ask(t.Context(), n, "udp", b.Addr()); err != nil || time.Since(asked) < thinks {
			t.Errorf("a backend that thinks for %v answered after %v, %v", thinks, time.Since(asked), err)
		}
		s, err := Connect(t.Context(), n, b.Addr())
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range []string{"one", "", "three"} {
			if err := s.Echo(t.Context(), line); err != nil {
				t.Error(err)
			}
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestBackend_CloseCutsSessionsRefusesNew: closing a backend ends its sessions and rejects new ones.
func TestBackend_CloseCutsSessionsRefusesNew(t *testing.T) {
	n := New(t, "n")
	b, err := StartBackend(n, "b", netip.MustParseAddrPort("127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	s, err := Connect(t.Context(), n, b.Addr())
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Echo(t.Context(), "late"); err == nil {
		t.Error("a session outlived its backend")
	} else if !errors.Is(err, io.EOF) && !strings.Contains(err.Error(), "reset") && !strings.Contains(err.Error(), "pipe") {
		t.Errorf("a cut session failed with %v, want the end of the stream", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	for _, network := range []string{"tcp", "udp"} {
		if _, err := Ask(t.Context(), n, network, b.Addr()); err == nil || !strings.Contains(err.Error(), "refused") {
			t.Errorf("%s to a closed backend: %v, want a refusal", network, err)
		}
	}
}

// TestBackend_PortTaken: a second backend on a used port is an error that names it.
func TestBackend_PortTaken(t *testing.T) {
	n := New(t, "n")
	b := Serve(t, n, "first", netip.MustParseAddrPort("127.0.0.1:0"))
	if _, err := StartBackend(n, "second", b.Addr()); err == nil || !strings.Contains(err.Error(), "backend second: netns n:") {
		t.Errorf("second backend on %s: %v", b.Addr(), err)
	}
}

// TestBackend_NamelessAnswersReachedAddress: a backend without a name answers with the address that the client reached.
func TestBackend_NamelessAnswersReachedAddress(t *testing.T) {
	n := New(t, "n")
	v4 := Serve(t, n, "", netip.MustParseAddrPort("0.0.0.0:8080"))
	v6 := Serve(t, n, "", netip.MustParseAddrPort("[::]:8080"))
	for _, at := range []string{"127.0.0.1", "127.1.2.3", "::1"} {
		for _, network := range []string{"tcp", "udp"} {
			answer, err := Ask(t.Context(), n, network, netip.AddrPortFrom(netip.MustParseAddr(at), v4.Addr().Port()))
			if err != nil || answer.Backend != at || v6.Addr().Port() != 8080 {
				t.Errorf("%s to %s: %+v, %v", network, at, answer, err)
			}
		}
	}
}

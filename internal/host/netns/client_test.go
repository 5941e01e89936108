// SPDX-License-Identifier: Apache-2.0

package netns

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/test/testenv"
)

// TestNamespace_SocketsStayInside: two namespaces listen on the same loopback address, and each listener is reached
// only from inside its namespace.
func TestNamespace_SocketsStayInside(t *testing.T) {
	for _, addr := range []string{"127.0.0.1:8080", "[::1]:8080", ":8080"} {
		for _, name := range []string{"a", "b"} {
			n := newNamespace(t, name)
			listener, err := n.Listen("tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			go func() {
				conn, err := listener.Accept()
				if err != nil {
					t.Errorf("accept in %s: %v", name, err)
					return
				}
				if _, err := io.WriteString(conn, name); err != nil {
					t.Error(err)
				}
				if err := conn.Close(); err != nil {
					t.Error(err)
				}
			}()
			target := addr
			if strings.HasPrefix(target, ":") {
				target = "127.0.0.1" + addr
			}
			conn, err := n.DialContext(t.Context(), "tcp", target)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := io.ReadAll(conn); err != nil || string(got) != name {
				t.Errorf("read %q, %v from %s in %s", got, err, target, name)
			}
			if err := conn.Close(); err != nil {
				t.Error(err)
			}
			if err := listener.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestNamespace_NoKeepAliveProbes: connections send no keep-alive probes, so they are silent while their ends do not
// write.
func TestNamespace_NoKeepAliveProbes(t *testing.T) {
	n := newNamespace(t, "n")
	listener, err := n.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close() // end of the test
	client, err := n.DialContext(t.Context(), "tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close() // end of the test
	server, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close() // end of the test
	for end, conn := range map[string]net.Conn{"dialed": client, "accepted": server} {
		raw, err := conn.(*net.TCPConn).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		var probes int
		var optionErr error
		err = raw.Control(func(fd uintptr) {
			probes, optionErr = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_KEEPALIVE)
		})
		if err := errors.Join(err, optionErr); err != nil || probes != 0 {
			t.Errorf("SO_KEEPALIVE of the %s connection is %d, %v; must be 0", end, probes, err)
		}
	}
}

func TestListenPacket(t *testing.T) {
	n := newNamespace(t, "n")
	server, err := n.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close() // end of the test
	client, err := n.DialContext(t.Context(), "udp", server.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close() // end of the test
	if _, err := client.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	if err := server.SetReadDeadline(time.Now().Add(testenv.Patience)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 16)
	size, from, err := server.ReadFrom(buf)
	if err != nil || string(buf[:size]) != "hello" || from.String() != client.LocalAddr().String() {
		t.Errorf("received %q from %v, %v", buf[:size], from, err)
	}
}

// TestNamespace_HostNamesRefused: a host name instead of a literal address is an error.
func TestNamespace_HostNamesRefused(t *testing.T) {
	n := newNamespace(t, "n")
	_, dialErr := n.DialContext(t.Context(), "tcp", "localhost:80")
	_, listenErr := n.Listen("tcp", "localhost:80")
	_, packetErr := n.ListenPacket("udp", "localhost:80")
	for what, err := range map[string]error{"DialContext": dialErr, "Listen": listenErr, "ListenPacket": packetErr} {
		if err == nil || !strings.Contains(err.Error(), "netns n") || !strings.Contains(err.Error(), "literal address") {
			t.Errorf("%s of a name: %v, want a refusal that says why", what, err)
		}
	}
}

// TestDial_EndsWithContext: a dial ends with its context.
func TestDial_EndsWithContext(t *testing.T) {
	a, b := newNamespace(t, "a"), newNamespace(t, "b")
	err := Link(a, b, LinkSpec{NameA: "eth0", AddrsA: Prefixes("10.0.0.1/24"), NameB: "eth0"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = a.DialContext(ctx, "tcp", "10.0.0.2:80") // no host answers the neighbour request
	var timeout net.Error
	if !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("dial to an address without a host: %v, want a timeout", err)
	}
}

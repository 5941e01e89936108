// SPDX-License-Identifier: Apache-2.0

package listeners

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane/relay"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/netnstest"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// rejection is an error of a listener on localhost.
func rejection(name string, err error) *OpenError {
	return &OpenError{
		Owner: service.Key{Namespace: "ns1", Name: name},
		Place: relay.Place{Protocol: service.UDP, At: netip.MustParseAddrPort("127.0.0.1:30053")}, Err: err,
	}
}

// TestRejectedError_CountsMany: a RejectedError quotes three failures and counts the others.
func TestRejectedError_CountsMany(t *testing.T) {
	e := &RejectedError{}
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		e.Failures = append(e.Failures, rejection(name, unix.EADDRINUSE))
	}
	text := e.Error()
	if !strings.Contains(text, "ns1/c") || strings.Contains(text, "ns1/d") || !strings.HasSuffix(text, "; and 2 more") {
		t.Errorf("got %q", text)
	}
	if !errors.Is(e, unix.EADDRINUSE) || len(e.suspects()) != 5 {
		t.Errorf("cause %v, %d suspects", errors.Unwrap(e), len(e.suspects()))
	}
}

// TestOpenError_SaysWhatToDo: the error of a listener that cannot be opened contains the Service, the address, the
// cause and a remedy.
func TestOpenError_SaysWhatToDo(t *testing.T) {
	for err, want := range map[error]string{
		unix.EADDRINUSE:    "ss --listening --processes --numeric --udp 'sport = :30053'",
		unix.EACCES:        "CAP_NET_BIND_SERVICE",
		unix.EADDRNOTAVAIL: "bring the loopback interface up",
		unix.EMFILE:        "too many open files",
	} {
		text := rejection("dns", err).Error()
		for _, part := range []string{"Service ns1/dns", "udp/127.0.0.1:30053", err.Error(), want} {
			if !strings.Contains(text, part) {
				t.Errorf("%q does not say %q", text, part)
			}
		}
		if elsewhere := strings.Contains(text, "works at the node's other addresses"); elsewhere != (err == unix.EADDRINUSE) {
			t.Errorf("%q", text)
		}
	}
}

// TestOpenError_HostsFault: missing file descriptors and memory are the host's fault at any address, and a missing
// address or family only on localhost. A port in use is not.
func TestOpenError_HostsFault(t *testing.T) {
	for err, want := range map[error]bool{
		unix.EADDRINUSE: false, unix.EACCES: false, io.EOF: false,
		unix.EMFILE: true, unix.ENFILE: true, unix.ENOBUFS: true, unix.EADDRNOTAVAIL: true, unix.EAFNOSUPPORT: true,
	} {
		e := rejection("dns", err)
		if got := e.hostsFault(); got != want {
			t.Errorf("%v is the host's fault: %v, want %v", err, got, want)
		}
		e.Place.At = netip.MustParseAddrPort("192.0.2.10:30053")
		if got := e.hostsFault(); got != relay.Exhausted(err) {
			t.Errorf("%v at an address of the node is the host's fault: %v", err, got)
		}
	}
}

// TestKernelDescribeHolder_OfPort: describeHolder names the process that holds a port, with any kind of socket.
func TestKernelDescribeHolder_OfPort(t *testing.T) {
	const program = `import socket, sys, time
kind, family, address = sys.argv[1:]
s = socket.socket(getattr(socket, family), socket.SOCK_STREAM if kind == "tcp" else socket.SOCK_DGRAM)
s.bind((address, 30080))
if kind == "tcp": s.listen()
print("ready", flush=True)
time.sleep(600)`
	node, python := netnstest.New(t, "node"), testenv.NeedsTool(t, "python3", "python3")
	for _, c := range []struct {
		protocol                service.Protocol
		family, address, wanted string
	}{
		{service.TCP, "AF_INET", "127.0.0.1", "127.0.0.1"},
		{service.TCP, "AF_INET", "0.0.0.0", "127.0.0.1"},
		{service.TCP, "AF_INET6", "::", "127.0.0.1"},
		{service.UDP, "AF_INET6", "::", "::1"},
		{service.UDP, "AF_INET", "127.0.0.1", "127.0.0.1"},
	} {
		p := relay.Place{Protocol: c.protocol, At: netip.AddrPortFrom(netip.MustParseAddr(c.wanted), 30080)}
		look := func() (text string) {
			if err := node.Do(func() error { text = describeHolder(p); return nil }); err != nil {
				t.Fatal(err)
			}
			return text
		}
		if text := look(); text != "" {
			t.Errorf("%s: nobody has it, and it says %q", p, text)
		}
		cmd := exec.Command(python, "-c", program, c.protocol.String(), c.family, c.address)
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = netnstest.Start(node, cmd)
		}
		if err != nil {
			t.Fatal(err)
		}
		_, _ = out.Read(make([]byte, 16)) // it is ready
		pid := cmd.Process.Pid
		want, text := fmt.Sprintf("port 30080 on %s is held by pid %d (", c.wanted, pid), ""
		testenv.Eventually(t, "the search, which has 200 ms, finds the process", func() bool {
			text = look()
			return !strings.Contains(text, "cannot be seen")
		})
		if !strings.HasPrefix(text, want) || !strings.Contains(text, "python3 -c") {
			t.Errorf("%s at %s: %q, want %q", p, c.address, text, want)
		}
		_ = cmd.Process.Kill() // it has not ended before
		_ = cmd.Wait()
	}
}

package relay

import (
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/service"
)

// owned is an error of a Service.
type owned struct {
	error
	owner service.Key
}

func (o owned) Owner() service.Key { return o.owner }
func (o owned) Error() string      { return o.owner.String() + ": " + o.error.Error() }
func (o owned) Unwrap() error      { return o.error }

func TestRefusalsAreCountedWhenTheyAreMany(t *testing.T) {
	e := &RejectedError[owned]{}
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		e.Failures = append(e.Failures, owned{unix.EADDRINUSE, service.Key{Namespace: "ns1", Name: name}})
	}
	text := e.Error()
	if !strings.Contains(text, "ns1/c") || strings.Contains(text, "ns1/d") || !strings.HasSuffix(text, "; and 2 more") {
		t.Errorf("got %q", text)
	}
	if !errors.Is(e, unix.EADDRINUSE) || len(e.Suspects()) != 5 {
		t.Errorf("cause %v, %d suspects", errors.Unwrap(e), len(e.Suspects()))
	}
}

// TestKernelHolderOfAPort finds another process, with any kind of socket.
func TestKernelHolderOfAPort(t *testing.T) {
	const program = `import socket, sys, time
kind, family, address = sys.argv[1:]
s = socket.socket(getattr(socket, family), socket.SOCK_STREAM if kind == "tcp" else socket.SOCK_DGRAM)
s.bind((address, 30080))
if kind == "tcp": s.listen()
print("ready", flush=True)
time.sleep(600)`
	node, err := netns.New("node")
	if err != nil {
		t.Fatal(err)
	}
	defer node.Close() //nolint:errcheck // the namespace ends with the process at the latest
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
		p := Place{Protocol: c.protocol, At: netip.AddrPortFrom(netip.MustParseAddr(c.wanted), 30080)}
		look := func() (text string) {
			if err := node.Do(func() error { text = DescribeHolder(p); return nil }); err != nil {
				t.Fatal(err)
			}
			return text
		}
		if text := look(); text != "" {
			t.Errorf("%s: nobody has it, and it says %q", p, text)
		}
		cmd := exec.Command("python3", "-c", program, c.protocol.String(), c.family, c.address)
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = node.Start(cmd)
		}
		if err != nil {
			t.Fatal(err)
		}
		_, _ = out.Read(make([]byte, 16)) // it is ready
		pid := cmd.Process.Pid
		if text, want := look(), fmt.Sprintf("port 30080 on %s is held by pid %d (", c.wanted, pid); !strings.HasPrefix(text, want) || !strings.Contains(text, "python3 -c") {
			t.Errorf("%s at %s: %q, want %q", p, c.address, text, want)
		}
		_ = cmd.Process.Kill() // it has not ended before
		_ = cmd.Wait()
	}
}

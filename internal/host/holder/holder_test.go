// SPDX-License-Identifier: Apache-2.0

package holder

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/test/netnstest"
)

// TestProcess_String: a process is described by what is known of its ID and command.
func TestProcess_String(t *testing.T) {
	for want, p := range map[string]Process{
		"a process that cannot be seen from here":      {},
		"a process of another PID namespace (k proxy)": {Command: "k proxy"},
		"pid 7":     {PID: 7},
		"pid 7 (k)": {PID: 7, Command: "k"},
		fmt.Sprintf("this process (pid %d)", os.Getpid()): Self(),
	} {
		if p.String() != want {
			t.Errorf("%+v: %q, want %q", p, p, want)
		}
	}
	if got := Plain("a\nb\x1b" + strings.Repeat("ü", commandMax)); len(got) > commandMax+len("…") || !strings.HasPrefix(got, "a?b?ü") {
		t.Errorf("%q", got)
	}
}

func TestParseAddress(t *testing.T) {
	for text, want := range map[string]string{
		"0100007F:7580": "127.0.0.1:30080", "00000000:0035": "0.0.0.0:53",
		"00000000000000000000000001000000:7580": "[::1]:30080",
		"0000000000000000FFFF00000100007F:7580": "127.0.0.1:30080",
		"nonsense":                              "", "0100007F": "", "01:7580": "", "0100007F:75800": "",
	} {
		at, err := parseAddress(text)
		if (err == nil) != (want != "") || (err == nil && at.String() != want) {
			t.Errorf("%s: %v, %v; want %s", text, at, err, want)
		}
	}
}

// holds is a program that holds a port until its input ends.
const holds = `import socket, sys
kind, address, port = sys.argv[1:]
s = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET,
                  socket.SOCK_STREAM if kind == "tcp" else socket.SOCK_DGRAM)
s.bind((address, int(port)))
if kind == "tcp": s.listen()
print("ready", flush=True)
sys.stdin.read()`

// TestKernelHolder_ListeningAddress: the holder of an address is the process that prevents listening, even if its own
// address is different.
func TestKernelHolder_ListeningAddress(t *testing.T) {
	n := netnstest.New(t, "addresses")
	start := func(kind, address, port string) int {
		cmd := exec.Command("python3", "-c", holds, kind, address, port)
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = netnstest.Start(n, cmd)
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { in.Close(); _ = cmd.Wait() })
		if _, err := io.ReadFull(out, make([]byte, len("ready"))); err != nil {
			t.Fatal(err)
		}
		return cmd.Process.Pid
	}
	four, six := start("tcp", "127.0.0.1", "1004"), start("tcp", "::", "1006")
	udp4, udp6 := start("udp", "127.0.0.1", "1014"), start("udp", "::", "1016")
	for _, c := range []struct {
		network, address string
		pid              int
	}{
		{"tcp", "127.0.0.1:1004", four},
		{"tcp4", "0.0.0.0:1004", four},
		{"tcp", "[::]:1004", four},
		{"tcp", "127.0.0.2:1004", 0},
		{"tcp", "[::1]:1004", 0},
		{"tcp4", "127.0.0.1:1006", six},
		{"tcp6", "[::1]:1006", six},
		{"tcp", "127.0.0.1:1007", 0},
		{"udp", "127.0.0.1:1004", 0},
		{"tcp", "127.0.0.1:1014", 0},
		{"udp4", "127.0.0.1:1014", udp4},
		{"udp", "127.0.0.1:1016", udp6},
		{"udp6", "[::1]:1016", udp6},
	} {
		err := n.Do(func() error {
			who, found := Of(c.network, netip.MustParseAddrPort(c.address))
			if found != (c.pid != 0) || who.PID != c.pid || (found && !strings.Contains(who.Command, "python3 -c ")) {
				return fmt.Errorf("%s %s: %v, %v, want %d", c.network, c.address, who, found, c.pid)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
	if who := (socket{Inode: 1}).owner(time.Now().Add(time.Minute)); who != (Process{}) {
		t.Errorf("nobody has the socket, and it is of %v", who)
	}
}

// TestOwner_OwnProcessFoundAtOnce: the own process is found without a search, because on a busy host the time for a
// search may be over before it began.
func TestOwner_OwnProcessFoundAtOnce(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	at := l.Addr().(*net.TCPAddr).AddrPort()
	all, err := listeningTCP()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		if s.conflicts(at) {
			if who := s.owner(time.Time{}); who.PID != os.Getpid() {
				t.Errorf("%v has %v", who, at)
			}
			return
		}
	}
	t.Errorf("nobody listens at %v", at)
}

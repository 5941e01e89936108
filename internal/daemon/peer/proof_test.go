// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/test/netnstest"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// kept is what a role holds open: garbage collection closes everything else.
var kept []io.Closer

// playProof plays a role of the tests below: it binds a name without listening ("bind NAME"), listens
// and answers nothing ("mute NAME"), reads everything that an offer sends ("grab"), connects over and
// over and says nothing ("dwell KIND NAME"), passes a socket on
// to the first process that waits for its lock ("pass NAME"), writes to a file what it thinks of the
// holder of a lock ("judge NAME [PATIENCE] FILE"), or waits for a lock, receives the sockets and writes their
// number and the error to a file ("succeed NAME FILE").
func playProof(words []string) error {
	switch words[0] {
	case "bind":
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		return unix.Bind(fd, &unix.SockaddrUnix{Name: words[1]})
	case "mute":
		l, err := net.Listen("unix", words[1])
		kept = append(kept, l)
		return err
	case "grab":
		go grab()
	case "dwell":
		go func() {
			for range 100_000 {
				c, err := net.Dial(words[1], words[2])
				kept = append(kept, c)
				if err != nil {
					time.Sleep(100 * time.Microsecond)
				}
			}
		}()
	case "pass":
		l := newLock(words[1])
		if h, err := l.Try(); h != nil || err != nil {
			return fmt.Errorf("%v, %w", h, err)
		}
		go passOn(l)
	case "judge":
		go func() {
			l := newLock(words[1])
			if len(words) > 3 {
				l.patience, _ = time.ParseDuration(words[2]) // the test passes a valid one
			}
			h, err := l.Try()
			if h == nil {
				h = &Holder{}
			}
			_ = os.WriteFile(words[len(words)-1], fmt.Appendf(nil, "stranger %t pid %d %v\n", h.ForeignProcess, h.PID, err), 0o600)
		}()
	case "succeed":
		go func() {
			l := newLock(words[1])
			l.offerPatience = testenv.Patience
			err := l.Acquire(context.Background(), func(Holder) {})
			var sockets []*os.File
			if err == nil {
				sockets, _, err = l.Receive()
			}
			_ = os.WriteFile(words[2], fmt.Appendf(nil, "%d %v\n", len(sockets), err), 0o600)
		}()
	}
	return nil
}

// grab connects to an offer over and over, and keeps each descriptor that it gets.
func grab() {
	for range 100_000 {
		conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: passName, Net: "unixpacket"})
		if err != nil {
			time.Sleep(100 * time.Microsecond)
			continue
		}
		for err == nil {
			_, err = receive(conn)
		}
		_ = conn.Close()
	}
}

func passOn(l *Lock) {
	for range 60_000 {
		if l.Waited() {
			break
		}
		time.Sleep(time.Millisecond)
	}
	offer, err := NewOffer()
	if err == nil {
		offer.patience = testenv.Patience
		go func() { _ = offer.Give([]*os.File{os.Stdin}, time.Minute) }()
	}
	time.Sleep(50 * time.Millisecond) // strangers connect now
	l.Release()
}

// container starts another process in a PID namespace that it makes. It sees no process outside.
func container(t *testing.T, inside *netns.Namespace, part string) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
	startCommand(t, inside, cmd, part)
}

// result starts a container that plays a role, and returns what it writes to the file in its last word.
func result(t *testing.T, inside *netns.Namespace, part string) (text string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "result")
	container(t, inside, part+" "+file)
	await(t, func() bool {
		content, _ := os.ReadFile(file)
		text = string(content)
		return strings.HasSuffix(text, "\n")
	})
	return text
}

// TestKernelProof_NoCapsInOtherContainer: a lock holder that is root without capabilities in another container is a
// foreign process, whether it speaks the protocol, is silent, or does not even listen.
func TestKernelProof_NoCapsInOtherContainer(t *testing.T) {
	testenv.NeedsRoot(t)
	for _, part := range []string{"hold", "mute", "bind"} {
		t.Run(part, func(t *testing.T) {
			name := unique(t)
			start(t, nil, "powerless "+part+" "+name)
			if got := result(t, nil, "judge "+name+" 200ms"); got != "stranger true pid 0 <nil>\n" {
				t.Errorf("%q", got)
			}
		})
	}
}

// TestKernelProof_ProxyInOtherContainer: a proxy in another container is no foreign process, although its process ID is
// not visible.
func TestKernelProof_ProxyInOtherContainer(t *testing.T) {
	testenv.NeedsRoot(t)
	name := unique(t)
	start(t, nil, "hold "+name)
	if got := result(t, nil, "judge "+name); got != "stranger false pid 0 <nil>\n" {
		t.Errorf("%q", got)
	}
}

// TestKernelOffer_OtherContainer: the successor gets the sockets of a proxy in another container, although root without
// capabilities asks first, or fills the places of processes that have not identified themselves.
func TestKernelOffer_OtherContainer(t *testing.T) {
	for _, stranger := range []string{"", "grab", "dwell unixpacket " + passName, "dwell unix LOCK"} {
		t.Run(strings.Fields(stranger + " alone")[0], func(t *testing.T) {
			n, name := netnstest.New(t, "pass"), unique(t)
			container(t, n, "pass "+name)
			if stranger != "" {
				start(t, n, "powerless "+strings.Replace(stranger, "LOCK", name, 1))
				start(t, n, "powerless "+strings.Replace(stranger, "LOCK", name, 1))
			}
			if got := result(t, n, "succeed "+name); got != "1 <nil>\n" {
				t.Errorf("%q", got)
			}
		})
	}
}

// TestKernelProof_Conditions: a socket is a proof only if it is in this network namespace, is connected to this
// process, and was changed by a process with CAP_NET_ADMIN.
func TestKernelProof_Conditions(t *testing.T) {
	n, name := netnstest.New(t, "proof"), unique(t)
	start(t, nil, "hold "+name)
	dial := func(name string) *net.UnixConn {
		t.Helper()
		conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: name, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	own := func() (ours, theirs *net.UnixConn) {
		listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: name + "/own", Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close() // both ends exist
		theirs = dial(name + "/own")
		if ours, err = listener.AcceptUnix(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = ours.Close() })
		return ours, theirs
	}
	ours, theirs := own()
	var foreign *net.UnixConn
	if err := n.Do(func() error { _, foreign = own(); return nil }); err != nil {
		t.Fatal(err)
	}
	_, monotonic := own()
	for _, c := range []struct {
		as    string
		conn  *net.UnixConn
		clock uint32
		want  bool
	}{
		{"its own end", theirs, unix.CLOCK_TAI, true},
		{"a clock that any process may set", monotonic, unix.CLOCK_MONOTONIC, false},
		{"a socket of another network namespace", foreign, unix.CLOCK_TAI, false},
		{"a socket that is connected to another process", dial(name), unix.CLOCK_TAI, false},
	} {
		file, err := c.conn.File()
		if err != nil {
			t.Fatal(err)
		}
		option := string(binary.NativeEndian.AppendUint32(nil, c.clock)) + "\x00\x00\x00\x00" // no flags
		if err := unix.SetsockoptString(int(file.Fd()), unix.SOL_SOCKET, unix.SO_TXTIME, option); err != nil {
			t.Fatal(err)
		}
		if got := proves(ours, int(file.Fd())); got != c.want {
			t.Errorf("%s: %t", c.as, got)
		}
		_ = file.Close()
	}
}

// TestKernelReceive_NoCapsInOtherContainer: a proxy takes no sockets from root without capabilities in another
// container, which would keep a copy of each.
func TestKernelReceive_NoCapsInOtherContainer(t *testing.T) {
	n := netnstest.New(t, "pass")
	start(t, n, "powerless offer")
	if got := result(t, n, "succeed "+unique(t)); !strings.HasPrefix(got, "0 take sockets over: ") {
		t.Errorf("%q", got)
	}
}

// TestEntrance_SilentConnectionsBounded: the number of silent connections is limited: a new one closes the oldest one,
// and a waiting proxy can still identify itself.
func TestEntrance_SilentConnectionsBounded(t *testing.T) {
	name := unique(t)
	l, second := newLock(name), newLock(name)
	l.patience = time.Hour // does not cut connections in this test
	if h, err := l.Try(); h != nil || err != nil {
		t.Fatal(h, err)
	}
	defer l.Release()
	var silent []net.Conn
	for range 2 * guestsMax {
		conn, err := net.Dial("unix", name)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		silent = append(silent, conn)
	}
	var cut atomic.Int32 // which ones are cut depends on the order of goroutines
	for _, conn := range silent {
		go func() {
			_, _ = conn.Read(make([]byte, 1))
			cut.Add(1)
		}()
	}
	testenv.Eventually(t, fmt.Sprintf("all but %d of %d are cut", guestsMax, len(silent)), func() bool { return int(cut.Load()) >= len(silent)-guestsMax })
	if h, err := second.Try(); err != nil || h == nil || h.ForeignProcess {
		t.Errorf("%+v, %v", h, err)
	}
	defer second.leave()
	await(t, l.Waited)
}

// TestEntrance_Closed: a closed entrance admits no connection, so an offer ends without a wait for foreign processes
// that its goroutines have not seen yet.
func TestEntrance_Closed(t *testing.T) {
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: unique(t), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close() // nothing was written
	silent, err := net.DialUnix("unix", nil, listener.Addr().(*net.UnixAddr))
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close() // nothing was written
	conn, err := listener.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	var e entrance
	e.close()
	if _, err := e.admit(conn, time.Second); !errors.Is(err, net.ErrClosed) {
		t.Errorf("%v, want that it is closed", err)
	}
	_ = conn.Close() // nothing was written
}

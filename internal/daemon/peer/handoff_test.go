// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/internal/host/holder"
	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/test/netnstest"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// playPassing plays a role of the tests below: it connects over and over ("knock KIND NAME") or many
// times ("crowd KIND NAME"), offers a socket ("offer"), or takes a lock and hands the listener down to
// a process whose ID it writes ("bequeath NAME FILE").
func playPassing(words []string) error {
	switch words[0] {
	case "knock":
		go func() {
			for range 100_000 {
				if _, err := net.Dial(words[1], words[2]); err != nil { // it stays connected
					time.Sleep(100 * time.Microsecond)
				}
			}
		}()
	case "crowd":
		for range 2 * asksMax {
			if _, err := net.Dial(words[1], words[2]); err != nil {
				return err
			}
		}
	case "offer":
		offer, err := NewOffer()
		if err != nil {
			return err
		}
		go func() { _ = offer.Give([]*os.File{os.Stdin}, time.Minute) }()
	case "bequeath":
		l := newLock(words[1])
		if h, err := l.Try(); h != nil || err != nil {
			return fmt.Errorf("%v, %w", h, err)
		}
		listener, err := l.listener.File()
		if err != nil {
			return err
		}
		heir := exec.Command("sleep", "60")
		heir.ExtraFiles = []*os.File{listener}
		if err := heir.Start(); err != nil {
			return err
		}
		return os.WriteFile(words[2], []byte(strconv.Itoa(heir.Process.Pid)), 0o600)
	default:
		return playProof(words)
	}
	return nil
}

// takeOver lets a proxy in a namespace end and pass a socket on to one that waits for it. It returns
// how many sockets the successor got, and the errors of both.
func takeOver(t *testing.T, n *netns.Namespace, name string) (sockets int, received, gave error) {
	t.Helper()
	file, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	former, successor := newLock(name), newLock(name)
	successor.offerPatience = testenv.Patience
	inside := func(f func() error) {
		t.Helper()
		if err := n.Do(f); err != nil {
			t.Fatal(err)
		}
	}
	var offer *Offer
	inside(func() error {
		h, err := former.Try()
		if h != nil {
			err = fmt.Errorf("held by %v", h)
		}
		return err
	})
	type result struct {
		sockets int
		err     error
	}
	results := make(chan result, 1)
	go func() {
		var r result
		r.err = n.Do(func() error {
			if err := successor.Acquire(t.Context(), func(Holder) {}); err != nil {
				return err
			}
			sockets, done, err := successor.Receive()
			if done != nil {
				_ = done.Close()
			}
			for _, socket := range sockets {
				_ = socket.Close()
			}
			r.sockets = len(sockets)
			return err
		})
		results <- r
	}()
	await(t, func() bool { return former.Waited() })
	inside(func() (err error) { offer, err = NewOffer(); return err })
	offer.patience = testenv.Patience
	given := make(chan error, 1)
	go func() { given <- offer.Give([]*os.File{file}, time.Minute) }()
	time.Sleep(50 * time.Millisecond) // strangers connect now
	former.Release()
	r := <-results
	successor.Release()
	return r.sockets, r.err, <-given
}

// TestKernelOffer_StrangerFirst: a proxy passes its sockets on although another user of the host polls the socket and
// connects first.
func TestKernelOffer_StrangerFirst(t *testing.T) {
	n := netnstest.New(t, "pass")
	start(t, n, "knock unixpacket "+passName)
	start(t, n, "knock unixpacket "+passName)
	if sockets, received, gave := takeOver(t, n, unique(t)); sockets != 1 || received != nil || gave != nil {
		t.Errorf("%d sockets; received: %v; gave: %v", sockets, received, gave)
	}
}

// TestKernelOffer_OnlyStrangers: an offer to which only foreign processes connect waits until its patience ends, and
// names them.
func TestKernelOffer_OnlyStrangers(t *testing.T) {
	n := netnstest.New(t, "pass")
	var offer *Offer
	if err := n.Do(func() (err error) { offer, err = NewOffer(); return err }); err != nil {
		t.Fatal(err)
	}
	stranger := start(t, n, "knock unixpacket "+passName)
	offer.patience = 4 * time.Second // enough for some connections of the stranger
	began := time.Now()
	err := offer.Give(nil, time.Minute)
	want := fmt.Sprintf("process %d of user 65534 is no proxy", stranger.Process.Pid)
	if err == nil || strings.Count(err.Error(), want) != strangersMax || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%v; want %q %d times, and a timeout", err, want, strangersMax)
	}
	if took := time.Since(began); took < offer.patience {
		t.Errorf("waited %v", took)
	}
}

// TestKernelReceive_HolderWithoutLock: a proxy takes no sockets from a process that did not hold the lock, even if that
// process has a proxy's privileges.
func TestKernelReceive_HolderWithoutLock(t *testing.T) {
	n := netnstest.New(t, "pass")
	name := unique(t)
	former := start(t, n, "hold "+name, "sluice", "proxy")
	other := start(t, n, "offer", "another")
	l := newLock(name)
	err := n.Do(func() error {
		if holder, err := l.Try(); err != nil || holder == nil || holder.ForeignProcess {
			return fmt.Errorf("%v, %w", holder, err)
		}
		if err := former.Process.Kill(); err != nil {
			return err
		}
		return l.Acquire(t.Context(), func(Holder) {})
	})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Release()
	var sockets []*os.File
	err = n.Do(func() (err error) { sockets, _, err = l.Receive(); return err })
	want := fmt.Sprintf("take sockets over: pid %d (another) offers them, and pid %d (sluice proxy) had the lock", other.Process.Pid, former.Process.Pid)
	if err == nil || err.Error() != want || sockets != nil {
		t.Errorf("%d sockets, %v, want %q", len(sockets), err, want)
	}
}

// TestKernelLock_StrangersNotCounted: foreign processes do not count as waiting for the lock, and do not take the
// places of those that wait.
func TestKernelLock_StrangersNotCounted(t *testing.T) {
	n := netnstest.New(t, "pass")
	name := unique(t)
	l, second := newLock(name), newLock(name)
	if err := n.Do(func() error { _, err := l.Try(); return err }); err != nil {
		t.Fatal(err)
	}
	defer l.Release()
	start(t, n, "crowd unix "+name)
	time.Sleep(100 * time.Millisecond) // the last ones are answered now
	if l.Waited() {
		t.Error("strangers count as a process that waits")
	}
	if err := n.Do(func() error { _, err := second.Try(); return err }); err != nil {
		t.Fatal(err)
	}
	defer second.leave()
	await(t, func() bool { return l.Waited() })
}

// TestKernelLock_RootWithoutCapabilities: root without capabilities is a foreign process: root in a container of the
// host's network namespace cannot change rules.
func TestKernelLock_RootWithoutCapabilities(t *testing.T) {
	testenv.NeedsRoot(t)
	name := unique(t)
	other := start(t, nil, "powerless hold "+name)
	holder, err := newLock(name).Try()
	if err != nil || holder == nil || !holder.ForeignProcess || holder.PID != other.Process.Pid {
		t.Errorf("%+v, %v", holder, err)
	}
}

// TestKernelLock_ListenerWithoutProcess: a process that inherited the socket of an ended process does not count as that
// process. A proxy that ends looks the same for a moment, and does not count as foreign.
func TestKernelLock_ListenerWithoutProcess(t *testing.T) {
	testenv.NeedsRoot(t)
	name, file := unique(t), filepath.Join(t.TempDir(), "heir")
	former := start(t, nil, "bequeath "+name+" "+file)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(string(text))
	if err != nil {
		t.Fatal(err)
	}
	heir, err := os.FindProcess(pid)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = heir.Kill() })
	l := newLock(name)
	if holder, err := l.Try(); err != nil || holder == nil || holder.ForeignProcess {
		t.Fatalf("before its end: %+v, %v", holder, err)
	}
	l.leave()
	if err := former.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = former.Wait() // it was killed
	if _, err := l.ask(); !errors.Is(err, errGone) {
		t.Errorf("right after its end: %v", err)
	}
	if holder, err := l.Try(); err != nil || holder == nil || !holder.ForeignProcess {
		t.Errorf("long after its end: %+v, %v", holder, err)
	}
}

// TestAdministers_ChangedUser: a process that runs as another user than the one that connected is not trusted: a
// program that sets its user runs as root for anyone.
func TestAdministers_ChangedUser(t *testing.T) {
	if may, err := administers(os.Getpid(), 65534); may || err != nil {
		t.Errorf("%t, %v", may, err)
	}
	if may, err := administers(os.Getpid(), uint32(os.Geteuid())); may != (os.Geteuid() == 0) || err != nil {
		t.Errorf("%t, %v", may, err)
	}
	if _, err := administers(1<<30, 0); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no such process: %v", err)
	}
}

// TestOffer_PassesSockets: a successor receives many listening sockets. A client that connects before, during or after
// that finds a listener, and the previous owner learns when the successor has finished.
func TestOffer_PassesSockets(t *testing.T) {
	const many = 3*passMax + 7
	var files []*os.File
	var where []string
	for range many {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		file, err := l.(*net.TCPListener).File()
		if err != nil {
			t.Fatal(err)
		}
		where, files = append(where, l.Addr().String()), append(files, file)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	successor := newLock(unique(t))
	successor.holder = Holder{Process: holder.Self()}
	if sockets, done, err := successor.Receive(); sockets != nil || done != nil || err != nil {
		t.Fatalf("without an offer: %v, %v, %v", sockets, done, err)
	}
	offer, err := NewOffer()
	if err != nil {
		t.Fatal(err)
	}
	gave := make(chan error, 1)
	go func() { gave <- offer.Give(files, time.Minute) }()
	sockets, done, err := successor.Receive()
	if err != nil || len(sockets) != many {
		t.Fatalf("%d sockets, want %d: %v", len(sockets), many, err)
	}
	select {
	case err := <-gave:
		t.Fatalf("the former owner ends before its successor has finished: %v", err)
	default:
	}
	if err := done.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-gave; err != nil {
		t.Error(err)
	}
	for i, socket := range sockets {
		if err := files[i].Close(); err != nil {
			t.Error(err)
		}
		client, err := net.Dial("tcp", where[i])
		if err != nil {
			t.Fatalf("rejected while nobody accepts: %v", err)
		}
		l, err := net.FileListener(socket)
		if err != nil {
			t.Fatal(err)
		}
		if server, err := l.Accept(); err != nil || server.RemoteAddr().String() != client.LocalAddr().String() {
			t.Errorf("accepted %v, %v, want %v", server, err, client.LocalAddr())
		}
		for _, c := range []interface{ Close() error }{client, l, socket} {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestOffer_SuccessorEnds: the offer of the previous owner ends when the successor is killed.
func TestOffer_SuccessorEnds(t *testing.T) {
	offer, err := NewOffer()
	if err != nil {
		t.Fatal(err)
	}
	gave := make(chan error, 1)
	go func() { gave <- offer.Give(nil, time.Hour) }()
	conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: passName, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(greet(conn, []byte{0}), conn.Close()); err != nil {
		t.Fatal(err)
	}
	if err := <-gave; err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%v; want that of a connection that has ended", err)
	}
}

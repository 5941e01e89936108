// SPDX-License-Identifier: Apache-2.0

package inspection

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/sluice-proxy/sluice/test/testenv"
)

// says answers every request with a text.
func says(text string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, text) })
}

// asked returns what a socket answers; the test waits for it for a while.
func asked(t *testing.T, path string) string {
	t.Helper()
	for began := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		text, err := askOnce(path)
		if err == nil {
			return text
		}
		if time.Since(began) > testenv.Patience {
			t.Fatal(err)
		}
	}
}

func askOnce(path string) (string, error) {
	conn, err := net.Dial("unix", path)
	if err != nil {
		return "", err
	}
	defer conn.Close() // it was only read
	_ = conn.SetDeadline(time.Now().Add(testenv.Patience))
	if _, err := fmt.Fprint(conn, "GET / HTTP/1.0\r\n\r\n"); err != nil {
		return "", err
	}
	answer := make([]byte, 4096)
	n := 0
	for {
		read, err := conn.Read(answer[n:])
		n += read
		if err != nil {
			_, body, _ := strings.Cut(string(answer[:n]), "\r\n\r\n")
			return body, nil
		}
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestSocket_StaysAcrossServers: the socket stays while servers change.
func TestSocket_StaysAcrossServers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state", "sluice.sock")
	k := NewSocket(zap.NewNop())
	k.Show(path, says("first"))
	if got := asked(t, path); got != "first" {
		t.Errorf("%q", got)
	}
	before, err := os.Lstat(path)
	if err != nil || before.Mode() != fs.ModeSocket|0o600 {
		t.Fatalf("%v, %v", before.Mode(), err)
	}
	k.Show(path, says("second"))
	if got, err := askOnce(path); err != nil || got != "second" {
		t.Errorf("%q, %v", got, err)
	}
	if after, err := os.Lstat(path); err != nil || !os.SameFile(before, after) {
		t.Errorf("the socket has been replaced: %v", err)
	}
	other := filepath.Join(t.TempDir(), "sluice.sock")
	k.Show(other, says("third"))
	if got := asked(t, other); got != "third" {
		t.Errorf("%q", got)
	}
	if _, err := os.Lstat(filepath.Dir(path)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the former directory, which was its own, stays: %v", err)
	}
	k.Close()
	k.Close()
	if _, err := os.Lstat(other); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket stays: %v", err)
	}
}

// TestSocket_ReplacesOnlyAbandoned: only a socket on which no process listens is replaced.
func TestSocket_ReplacesOnlyAbandoned(t *testing.T) {
	dir := t.TempDir()
	stale := filepath.Join(dir, "stale")
	left, err := net.ListenUnix("unix", &net.UnixAddr{Name: stale, Net: "unix"})
	check(t, err)
	left.SetUnlinkOnClose(false)
	check(t, left.Close())
	k := NewSocket(zap.NewNop())
	defer k.Close()
	k.Show(stale, says("new"))
	if got := asked(t, stale); got != "new" {
		t.Errorf("%q", got)
	}

	taken := filepath.Join(dir, "taken")
	owner, err := net.ListenUnix("unix", &net.UnixAddr{Name: taken, Net: "unix"})
	check(t, err)
	log, said := observer.New(zap.WarnLevel)
	second := NewSocket(zap.New(log))
	defer second.Close()
	second.Show(taken, says("second"))
	for began := time.Now(); said.Len() == 0 && time.Since(began) < testenv.Patience; time.Sleep(time.Millisecond) {
		if conn, err := owner.Accept(); err == nil { // the one that looks whether somebody listens
			check(t, conn.Close())
		}
	}
	if all := said.All(); len(all) != 1 || !strings.Contains(fmt.Sprint(all[0].ContextMap()["error"]), "another process listens there") {
		t.Errorf("%v", all)
	}
	check(t, owner.Close()) // it removes its file
	if got := asked(t, taken); got != "second" {
		t.Errorf("%q", got)
	}

	file := filepath.Join(dir, "file")
	check(t, os.WriteFile(file, []byte("mine"), 0o600))
	if err := clearStale(file); err == nil {
		t.Error("a file that is no socket counts as stale")
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "mine" {
		t.Errorf("%q, %v", text, err)
	}
}

// TestSocket_DeadClientsCut: clients that connect and send nothing are disconnected, regardless of their number, and
// the socket closes although some of them are connected.
func TestSocket_DeadClientsCut(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sluice.sock")
	k := NewSocket(zap.NewNop())
	k.Show(path, says("alive"))
	asked(t, path)
	var dead []net.Conn
	for range connectionsMax + 5 {
		conn, err := net.Dial("unix", path)
		check(t, err)
		dead = append(dead, conn)
	}
	if got := asked(t, path); got != "alive" {
		t.Errorf("%q", got)
	}
	closed := make(chan struct{})
	go func() { k.Close(); close(closed) }()
	select {
	case <-closed:
	case <-time.After(testenv.Patience):
		t.Error("dead clients keep the socket open")
	}
	for _, conn := range dead {
		check(t, conn.Close())
	}
}

// TestWithoutPassword: the user, the password and the query of each URL are removed.
func TestWithoutPassword(t *testing.T) {
	for text, want := range map[string]string{
		"API server https://me:secret@10.0.0.1:6443/x?token=abc": "API server https://10.0.0.1:6443/x",
		"https://10.0.0.1:6443":                                  "https://10.0.0.1:6443", "/var/lib/kubeconfig": "/var/lib/kubeconfig", "manifests in m": "manifests in m",
	} {
		if got := withoutPassword(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

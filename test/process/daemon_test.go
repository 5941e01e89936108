// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/test/netnstest"
	"github.com/sluice-proxy/sluice/test/testenv"
)

func startShell(t *testing.T, script string) *Daemon {
	t.Helper()
	p, err := StartDaemon(netnstest.New(t, "n"), filepath.Join(t.TempDir(), "log"), exec.Command("/bin/sh", "-c", script))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Kill(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// TestDaemon_StopsOnSIGTERM: Stop ends a daemon with SIGTERM, and a second Stop is an error.
func TestDaemon_StopsOnSIGTERM(t *testing.T) {
	p := startShell(t, `trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.01; done`)
	testenv.Eventually(t, "the process prints its line", func() bool { return strings.Contains(p.Tail(1), "up") })
	if !p.Running() {
		t.Fatal("not running")
	}
	if err := p.Stop(); err != nil {
		t.Error(err)
	}
	if p.Running() || p.Tail(1) != "(1 lines before these)\nbye\n" {
		t.Errorf("running %v, log ends with %q", p.Running(), p.Tail(1))
	}
	if err := p.Stop(); err == nil || !strings.Contains(err.Error(), "ended unexpectedly") {
		t.Errorf("a second Stop: %v", err)
	}
}

// TestDaemon_StatusReported: Stop returns the exit status of a daemon that fails.
func TestDaemon_StatusReported(t *testing.T) {
	p := startShell(t, `trap 'exit 3' TERM; echo up; while :; do sleep 0.01; done`)
	testenv.Eventually(t, "the process prints its line", func() bool { return strings.Contains(p.Tail(1), "up") })
	if err := p.Stop(); err == nil || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("Stop of a process that ends with 3: %v", err)
	}
}

func TestDaemon_Kill(t *testing.T) {
	p := startShell(t, `trap '' TERM; while :; do sleep 0.01; done`)
	if err := p.Kill(); err != nil {
		t.Error(err)
	}
	if p.Running() {
		t.Error("still running after Kill")
	}
}

// TestDaemon_CannotStart: a program that cannot be started is an error that names the namespace.
func TestDaemon_CannotStart(t *testing.T) {
	_, err := StartDaemon(netnstest.New(t, "n"), filepath.Join(t.TempDir(), "log"), exec.Command("/does/not/exist"))
	if err == nil || !strings.Contains(err.Error(), "start exist in netns n") {
		t.Errorf("start of a missing program: %v", err)
	}
}

// TestDaemon_AwaitLine: AwaitLine waits for a line that is printed in parts, and returns an error if the context or the
// process ends.
func TestDaemon_AwaitLine(t *testing.T) {
	p := startShell(t, `printf 'not read'; echo y; sleep 0.05; printf 'rea'; sleep 0.05; echo 'dy now'; while :; do sleep 0.01; done`)
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
	defer cancel()
	if err := p.AwaitLine(ctx, "ready n"); err != nil || !strings.Contains(p.Tail(1), "ready now") {
		t.Errorf("%v, the log ends with %q", err, p.Tail(1))
	}
	soon, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := p.AwaitLine(soon, "never"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a line that does not come: %v", err)
	}
	if err := p.Kill(); err != nil {
		t.Error(err)
	}
	if err := p.AwaitLine(ctx, "never"); err == nil || !strings.Contains(err.Error(), "ended before") {
		t.Errorf("after the end: %v", err)
	}
}

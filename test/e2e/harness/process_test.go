package harness

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/internal/netns"
)

func newNamespace(t *testing.T, name string) *netns.Namespace {
	t.Helper()
	n, err := netns.New(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}

func startShell(t *testing.T, script string) *Process {
	t.Helper()
	p, err := startProcess(newNamespace(t, "n"), filepath.Join(t.TempDir(), "log"), exec.Command("/bin/sh", "-c", script))
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

func TestProcessStopsOnSIGTERM(t *testing.T) {
	p := startShell(t, `trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.01; done`)
	within(t, 5*time.Second, func() bool { return strings.Contains(p.tail(1), "up") })
	if !p.Running() {
		t.Fatal("not running")
	}
	if err := p.Stop(); err != nil {
		t.Error(err)
	}
	if p.Running() || p.tail(1) != "(1 lines before these)\nbye\n" {
		t.Errorf("running %v, log ends with %q", p.Running(), p.tail(1))
	}
	if err := p.Stop(); err == nil || !strings.Contains(err.Error(), "ended by itself") {
		t.Errorf("a second Stop: %v", err)
	}
}

func TestProcessStatusIsReported(t *testing.T) {
	p := startShell(t, `trap 'exit 3' TERM; echo up; while :; do sleep 0.01; done`)
	within(t, 5*time.Second, func() bool { return strings.Contains(p.tail(1), "up") })
	if err := p.Stop(); err == nil || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("Stop of a process that ends with 3: %v", err)
	}
}

func TestProcessKill(t *testing.T) {
	p := startShell(t, `trap '' TERM; while :; do sleep 0.01; done`)
	if err := p.Kill(); err != nil {
		t.Error(err)
	}
	if p.Running() {
		t.Error("still running after Kill")
	}
}

func TestProcessThatCannotStart(t *testing.T) {
	_, err := startProcess(newNamespace(t, "n"), filepath.Join(t.TempDir(), "log"), exec.Command("/does/not/exist"))
	if err == nil || !strings.Contains(err.Error(), "start exist in netns n") {
		t.Errorf("start of a missing program: %v", err)
	}
}

func within(t *testing.T, limit time.Duration, done func() bool) {
	t.Helper()
	for start := time.Now(); !done(); time.Sleep(time.Millisecond) {
		if time.Since(start) > limit {
			t.Fatalf("not done within %v", limit)
		}
	}
}

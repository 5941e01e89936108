// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestStandsAt(t *testing.T) {
	const stack = `1 @ 0x47a2ee 0x409b57
# labels: {"sluice-child":"demo/echo", "sluice-incarnation":"4"}
#	0x70e904	runtime.gopark+0x44	/go/src/runtime/proc.go:461
#	0x93ee1b	github.com/sluice-proxy/sluice/internal/daemon/demo.(*chaos).intercept+0x5b	/src/internal/daemon/demo/chaos.go:47
#	0x8d1d42	github.com/sluice-proxy/sluice/actors.(*actor).run+0x282	/src/actors/actor.go:90`
	for stack, want := range map[string]string{
		stack: "demo.(*chaos).intercept at chaos.go:47",
		"stack not available: the goroutine returned": "not captured",
	} {
		if got := standsAt(stack); got != want {
			t.Errorf("standsAt(%q) = %q, want %q", stack, got, want)
		}
	}
}

// TestAwaitApplied_NamesMissing: the error names the change that was not applied in time.
func TestAwaitApplied_NamesMissing(t *testing.T) {
	r := &run{recorder: newRecorder()}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	r.domains = []string{"one", "two"}
	began := time.Now()
	appliedAt(r.recorder, "one", began)
	_, err := r.awaitApplied(ctx, "the rules", time.Time{}, echo)
	if err == nil || !strings.Contains(err.Error(), "waiting for: the rules") {
		t.Errorf("got %v", err)
	}
	appliedAt(r.recorder, "two", began.Add(time.Second))
	last, err := r.awaitApplied(ctx, "the rules", time.Time{}, echo)
	if err != nil || !last.At.Equal(began.Add(time.Second)) {
		t.Errorf("got %v, %v; want the later of the two", last, err)
	}
}

func TestManifests_Replace(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	m, err := newManifests()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(m.dir, "echo.yaml")
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.replace("echo.yaml", "10.244.1.13", "10.244.1.14"); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), "10.244.1.13") || strings.Count(string(text), "10.244.1.14") != 1 {
		t.Errorf("the file reads\n%s", text)
	}
	if after, err := os.Stat(path); err != nil || os.SameFile(before, after) {
		t.Errorf("the file was written in place, %v", err)
	}
	if err := m.replace("echo.yaml", "10.244.1.13", "10.244.1.14"); err == nil || !strings.Contains(err.Error(), "nothing to replace") {
		t.Errorf("got %v, want that there is nothing to replace", err)
	}
	if err := m.replace("other.yaml", "a", "b"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	if err := m.close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(m.dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the directory is left: %v", err)
	}
}

func TestRulesAbout(t *testing.T) {
	const listing = `	map frontends-1 {
		elements = { 172.30.0.41 . tcp . 80 comment "demo/echo:echo" : goto cluster-4d,
			172.30.0.53 . udp . 53 comment "demo/dns:dns" : goto cluster-4d }
-A KUBE-SERVICES -d 172.30.0.41/32 -p tcp -m comment --comment "demo/echo:echo cluster IP" -j KUBE-SVC-1
`
	want := []string{`172.30.0.41 . tcp . 80 comment "demo/echo:echo" : goto cluster-4d`,
		`-A KUBE-SERVICES -d 172.30.0.41/32 -p tcp -m comment --comment "demo/echo:echo cluster IP" -j KUBE-SVC-1`}
	if got := rulesAbout(listing, "demo/echo"); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// SPDX-License-Identifier: Apache-2.0

package netnstest

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/internal/host/netns"
)

// threadNamespace names the network namespace of the thread that opens it.
const threadNamespace = "/proc/thread-self/ns/net"

// TestProgram_RunsInsideNamespace: Output, Run and Start run programs inside the namespace.
func TestProgram_RunsInsideNamespace(t *testing.T) {
	n := New(t, "n")
	want, err := Output(n, exec.Command("readlink", threadNamespace))
	if err != nil {
		t.Fatal(err)
	}
	outside, err := exec.Command("readlink", threadNamespace).Output()
	if err != nil {
		t.Fatal(err)
	}
	if string(want) == string(outside) {
		t.Fatalf("Output ran in the namespace outside, %s", outside)
	}

	var run, start strings.Builder
	ran := exec.Command("readlink", threadNamespace)
	ran.Stdout = &run
	if err := Run(n, ran); err != nil {
		t.Fatal(err)
	}
	started := exec.Command("readlink", threadNamespace)
	started.Stdout = &start
	if err := Start(n, started); err != nil {
		t.Fatal(err)
	}
	if err := started.Wait(); err != nil {
		t.Fatal(err)
	}
	if run.String() != string(want) || start.String() != string(want) {
		t.Errorf("Run in %q, Start in %q, want both in %q", run.String(), start.String(), want)
	}
}

// TestProgram_ReportsChildFailure: Run returns the failure of its program, and Start that of a missing one.
func TestProgram_ReportsChildFailure(t *testing.T) {
	n := New(t, "n")
	if err := Run(n, exec.Command("false")); err == nil {
		t.Error("Run(false) = nil, want its exit status")
	}
	if err := Start(n, exec.Command("/does/not/exist")); err == nil {
		t.Error("Start of a missing program = nil, want an error")
	}
}

// TestSysctl_PerNamespace: a sysctl changes inside one namespace, and neither in another one nor on the host.
func TestSysctl_PerNamespace(t *testing.T) {
	a, b := New(t, "a"), New(t, "b")
	const key = "net.ipv4.ip_forward"
	before, err := os.ReadFile("/proc/sys/net/ipv4/ip_forward")
	if err != nil {
		t.Fatal(err)
	}
	for _, value := range []string{"1", "0", "1"} {
		if err := a.Sysctl(key, value); err != nil {
			t.Fatal(err)
		}
		opposite := map[string]string{"0": "1", "1": "0"}[value]
		if err := b.Sysctl(key, opposite); err != nil {
			t.Fatal(err)
		}
		for n, want := range map[*netns.Namespace]string{a: value, b: opposite} {
			if got, err := ReadSysctl(n, key); err != nil || got != want {
				t.Errorf("%s in %s = %q, %v; want %q", key, n.Name(), got, err, want)
			}
		}
	}
	after, err := os.ReadFile("/proc/sys/net/ipv4/ip_forward")
	if err != nil {
		t.Fatal(err)
	}
	if string(before) != string(after) {
		t.Errorf("%s outside went from %q to %q", key, before, after)
	}
}

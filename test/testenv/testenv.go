// SPDX-License-Identifier: Apache-2.0

// Package testenv says what a test needs from its environment, how far the tier that runs it goes, and how long it may
// wait. Tests of every package call it.
//
// A test whose need is not met is skipped, with the reason and the remedy, so that `go test ./...` works for an
// ordinary user. In make test and the other tiers, which set SLUICE_TESTS (hack/lib), it fails.
package testenv

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"
)

// Patience is how long a test waits for something that happens soon. It is no promise to users, only a bound for a
// test that would hang, so it is far longer than any busy machine needs. Planted defects make many tests wait for it in
// vain, so make mutations sets SLUICE_TEST_PATIENCE.
var Patience = patience()

func patience() time.Duration {
	if d, err := time.ParseDuration(os.Getenv("SLUICE_TEST_PATIENCE")); err == nil {
		return d
	}
	return 2 * time.Minute
}

// All reports whether the variants of make test-all run: every release of nft, every variant of iptables, every mode
// and long computations. make test runs one of each.
func All() bool { return os.Getenv("SLUICE_TESTS") == "all" }

// Variants returns the first variant for make test, and all of them for make test-all.
func Variants[V any](first V, others ...V) []V {
	if All() {
		return append([]V{first}, others...)
	}
	return []V{first}
}

// OnlyInAll skips a test that make test does not run, because another test of that tier proves the same decision.
func OnlyInAll(t testing.TB) {
	t.Helper()
	if !All() {
		t.Skip("make test-all runs this test")
	}
}

// Missing skips a test whose need is not met, or fails it in a tier. The text says what is missing and the remedy.
func Missing(t testing.TB, format string, args ...any) {
	t.Helper()
	if os.Getenv("SLUICE_TESTS") != "" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}

// NeedsRoot skips a test that ordinary users cannot run.
func NeedsRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		Missing(t, "needs root: sudo make test")
	}
}

// NeedsTool skips a test if a program is missing, and names the Debian package that contains it. It returns the path.
func NeedsTool(t testing.TB, program, debianPackage string) string {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		Missing(t, "needs %s: apt-get install %s", program, debianPackage)
	}
	return path
}

// Program returns the path of the sluice binary that make built: $SLUICE_BINARY, or else bin/sluice of this checkout.
// No test builds it again. A test without it is skipped.
func Program(t testing.TB) string {
	t.Helper()
	path := os.Getenv("SLUICE_BINARY")
	if path == "" {
		path = filepath.Join(Root(), "bin", "sluice")
	}
	if _, err := os.Stat(path); err != nil {
		Missing(t, "needs the program: make build (%v)", err)
	}
	return path
}

// Root returns the directory of this checkout.
func Root() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "..", "..")
}

// Eventually waits until a condition holds, and fails the test if it does not within Patience.
func Eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(Patience); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", Patience, what)
		}
	}
}

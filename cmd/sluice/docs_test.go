// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/test/doctest"
	"github.com/sluice-proxy/sluice/test/netnstest"
)

// pageBench returns a directory with the examples, in a network namespace of its own.
func pageBench(t *testing.T) (doctest.Bench, *netns.Namespace) {
	t.Helper()
	namespace := netnstest.New(t, "page")
	for _, name := range []string{"net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"} { // as on a node
		if err := namespace.Sysctl(name, "1"); err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "examples"), os.DirFS(filepath.Join("..", "..", "examples"))); err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(dir, "bin")
	program(t, bin)
	return doctest.Bench{
		Dir: dir, Start: func(cmd *exec.Cmd) error { return netnstest.Start(namespace, cmd) },
		Env: []string{"PATH=" + bin + ":" + os.Getenv("PATH"),
			"XTABLES_LOCKFILE=" + filepath.Join(dir, "xtables.lock"), "GORACE=atexit_sleep_ms=0"},
	}, namespace
}

// program puts the program, which is this test's, into a directory that everybody can read.
func program(t *testing.T, dir string) {
	t.Helper()
	self, err := os.Executable()
	if err == nil {
		err = os.Mkdir(dir, 0o755) // a test's own directory
	}
	if err == nil && os.Link(self, filepath.Join(dir, "sluice")) == nil {
		return
	}
	var binary []byte
	if err == nil { // another file system
		binary, err = os.ReadFile(self)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "sluice"), binary, 0o755) // a program
	}
	if err != nil {
		t.Fatal(err)
	}
}

// followedPage is a page with commands, and what they expect to find.
type followedPage struct {
	page, as string
	bench    func(*testing.T) doctest.Bench
}

var pages = []followedPage{
	{page: "README.md", bench: nodeBench},
	{page: "docs/balancing.md", bench: nodeBench},
	{page: "docs/configuration.md", bench: nodeBench},
	{page: "docs/health.md", bench: nodeBench},
	{page: "docs/inspect.md", bench: nodeBench},
	{page: "docs/tutorial.md", bench: emptyBench},
	{page: "docs/tutorial.md", as: "without root", bench: unprivilegedBench},
	{page: "docs/logs.md", bench: nodeBench},
	{page: "docs/metrics.md", bench: nodeBench},
	{page: "docs/traffic.md", bench: nodeBench},
}

// TestDocs_Pages follows each page as a reader does, from the first command to the last.
func TestDocs_Pages(t *testing.T) {
	for _, p := range pages {
		t.Run(strings.TrimSpace(p.page+" "+p.as), func(t *testing.T) {
			t.Parallel()
			doctest.Run(t, filepath.Join("..", "..", p.page), p.bench(t))
		})
	}
}

// emptyBench is a node without rules.
func emptyBench(t *testing.T) doctest.Bench {
	t.Helper()
	bench, _ := pageBench(t)
	return bench
}

// unprivilegedBench is the same for a user who is not root.
func unprivilegedBench(t *testing.T) doctest.Bench {
	t.Helper()
	bench, _ := pageBench(t)
	bench.Prefix = []string{"setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"}
	open(t, bench.Dir)
	return bench
}

// open lets everybody write to a directory and reach it.
func open(t *testing.T, dir string) {
	t.Helper()
	if err := os.Chmod(dir, 0o777); err != nil { // a test's own directory
		t.Fatal(err)
	}
	for parent := filepath.Dir(dir); parent != os.TempDir(); parent = filepath.Dir(parent) {
		if err := os.Chmod(parent, 0o755); err != nil { // a test's own directory
			t.Fatal(err)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package netns

import (
	"errors"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/test/testenv"
)

// newNamespace makes a namespace that is closed with the test.
func newNamespace(t *testing.T, name string) *Namespace {
	t.Helper()
	testenv.NeedsRoot(t)
	n, err := New(name)
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

// threadInode identifies the network namespace of the calling thread.
func threadInode(t *testing.T) uint64 {
	t.Helper()
	return inode(t, threadNamespace)
}

func inode(t *testing.T, path string) uint64 {
	t.Helper()
	var stat unix.Stat_t
	if err := unix.Stat(path, &stat); err != nil {
		t.Errorf("stat %s: %v", path, err)
	}
	return stat.Ino
}

// TestNamespace_LoopbackUp: a new namespace contains only loopback, which is up.
func TestNamespace_LoopbackUp(t *testing.T) {
	outside := threadInode(t)
	n := newNamespace(t, "n")
	if got := threadInode(t); got != outside {
		t.Errorf("New left this goroutine in namespace %d, want %d", got, outside)
	}
	err := n.Do(func() error {
		if inside := threadInode(t); inside == outside || inside != inode(t, n.Path()) {
			t.Errorf("inside Do: namespace %d, outside %d, Path %d", inside, outside, inode(t, n.Path()))
		}
		links, err := net.Interfaces()
		if err != nil {
			return err
		}
		if len(links) != 1 || links[0].Name != "lo" || links[0].Flags&net.FlagUp == 0 {
			t.Errorf("interfaces of a new namespace: %v, want lo alone and up", links)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestDo_ReturnsError: Do returns the error of its function unchanged.
func TestDo_ReturnsError(t *testing.T) {
	n := newNamespace(t, "n")
	want := errors.New("mine")
	if got := n.Do(func() error { return want }); got != want {
		t.Errorf("Do returned %v, want %v", got, want)
	}
}

// TestDo_FunctionDidNotReturn: Do returns an error if its function did not return.
func TestDo_FunctionDidNotReturn(t *testing.T) {
	n := newNamespace(t, "n")
	err := n.Do(func() error { runtime.Goexit(); return nil })
	if !errors.Is(err, errAbandoned) {
		t.Errorf("Do returned %v, want %v", err, errAbandoned)
	}
}

func TestDo_Nested(t *testing.T) {
	a, b := newNamespace(t, "a"), newNamespace(t, "b")
	err := a.Do(func() error {
		before := threadInode(t)
		err := b.Do(func() error {
			if threadInode(t) == before {
				t.Error("the inner Do ran in the outer namespace")
			}
			return nil
		})
		if threadInode(t) != before {
			t.Error("the inner Do moved the outer one")
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestDo_Concurrent: many goroutines that enter two namespaces each run in the right one. The main thread, which
// /proc/self describes, never moves.
func TestDo_Concurrent(t *testing.T) {
	a, b := newNamespace(t, "a"), newNamespace(t, "b")
	home := inode(t, "/proc/self/ns/net")
	var wg sync.WaitGroup
	for i := range 16 {
		n := a
		if i%2 == 1 {
			n = b
		}
		want := inode(t, n.Path())
		wg.Go(func() {
			for range 100 {
				err := n.Do(func() error {
					if got := threadInode(t); got != want {
						t.Errorf("inside %s: namespace %d, want %d", n.Name(), got, want)
					}
					if got := inode(t, "/proc/self/ns/net"); got != home {
						t.Errorf("the main thread moved to namespace %d, want %d", got, home)
					}
					return nil
				})
				if err != nil {
					t.Error(err)
				}
				if got := threadInode(t); got != home {
					t.Errorf("after Do: namespace %d, want %d", got, home)
				}
			}
		})
	}
	wg.Wait()
}

func TestNamespace_Closed(t *testing.T) {
	n, err := New("gone")
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{
		"Do":    n.Do(func() error { return nil }),
		"Close": n.Close(),
	} {
		if !errors.Is(err, os.ErrClosed) || !strings.Contains(err.Error(), "gone") {
			t.Errorf("%s on a closed namespace: %v, want one that names it and matches os.ErrClosed", what, err)
		}
	}
}

// TestSysctl_RefusesMachineSettings: Sysctl rejects settings of the whole machine.
func TestSysctl_RefusesMachineSettings(t *testing.T) {
	n := newNamespace(t, "n")
	for _, key := range []string{"kernel.hostname", "net/../kernel/hostname", "net.ipv4.no_such_key"} {
		if err := n.Sysctl(key, "1"); err == nil {
			t.Errorf("Sysctl(%q) = nil, want an error", key)
		}
	}
}

// TestSysctl_DotInInterfaceName: Sysctl accepts an interface name with a dot.
func TestSysctl_DotInInterfaceName(t *testing.T) {
	a, b := newNamespace(t, "a"), newNamespace(t, "b")
	if err := Link(a, b, LinkSpec{NameA: "eth0.1", NameB: "eth0"}); err != nil {
		t.Fatal(err)
	}
	if err := a.Sysctl("net/ipv4/conf/eth0.1/rp_filter", "2"); err != nil {
		t.Error(err)
	}
}

package iptables

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestHolder(t *testing.T) {
	const locks = `1: POSIX  ADVISORY  WRITE 11 fe:00:42 0 EOF
2: -> FLOCK  ADVISORY  WRITE 12 fe:00:43 0 EOF
3: FLOCK  ADVISORY  WRITE 13 fe:01:42 0 EOF
4: FLOCK  ADVISORY  WRITE 14 fe:00:420 0 EOF
5: FLOCK  ADVISORY  WRITE 15 fe:00:42 0 EOF
`
	dev := unix.Mkdev(0xfe, 0)
	for inode, want := range map[uint64]string{42: "15", 420: "14", 43: ""} {
		if got := holder(strings.NewReader(locks), dev, inode); got != want {
			t.Errorf("inode %d: holder %q, want %q", inode, got, want)
		}
	}
}

func TestDescribeHolderOfAFreeLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	if got := describeHolder(path); !strings.Contains(got, "not known") {
		t.Errorf("no such file: %q", got)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got, want := describeHolder(path), path+" has been released since"; got != want {
		t.Errorf("free: %q, want %q", got, want)
	}
}

func TestLockPath(t *testing.T) {
	t.Setenv(lockEnv, "")
	if got := LockPath(); got != "/run/xtables.lock" {
		t.Errorf("default: %s", got)
	}
	t.Setenv(lockEnv, "/tmp/own.lock")
	if got := LockPath(); got != "/tmp/own.lock" {
		t.Errorf("with the environment variable: %s", got)
	}
}

// fakeProc makes a /proc with the given links and files.
func fakeProc(t *testing.T, links, files map[string]string) string {
	t.Helper()
	proc := t.TempDir()
	for name, target := range links {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(proc, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(target, filepath.Join(proc, name)); err != nil {
			t.Fatal(err)
		}
	}
	for name, content := range files {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(proc, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(proc, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return proc
}

func TestLockSharedOnTheHost(t *testing.T) {
	ours := t.TempDir()
	path := filepath.Join(ours, "xtables.lock")
	same := fakeProc(t, map[string]string{"self/ns/pid": initialPIDNamespace, "1/root": "/"}, nil)
	// In the other, process 1 sees another folder at the same place.
	other := fakeProc(t, map[string]string{"self/ns/pid": initialPIDNamespace}, map[string]string{filepath.Join("1/root", path): ""})
	check := func(when, proc string, want bool) {
		t.Helper()
		if got, err := lockShared(path, proc); err != nil || got != want {
			t.Errorf("%s: shared = %v, %v; want %v", when, got, err, want)
		}
	}
	check("before anybody made the file", same, true)
	check("where only the host has the file", other, false)
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	check("with the file", same, true)
	check("with another file there", other, false)
}

func TestLockSharedInAContainer(t *testing.T) {
	const root = "21 1 0:33 / / rw - overlay overlay rw\n"
	for name, tt := range map[string]struct {
		mounts string
		want   bool
	}{
		"on the container's root": {root + "22 21 0:5 / /proc rw - proc proc rw\n", false},
		"mounted file":            {root + "23 21 0:24 /xtables.lock /run/xtables.lock rw - tmpfs tmpfs rw\n", true},
		"mounted folder":          {root + "23 21 0:24 / /run rw - tmpfs tmpfs rw\n", true},
		"a longer name":           {root + "23 21 0:24 / /run/xtables.lock.d rw - tmpfs tmpfs rw\n", false},
	} {
		proc := fakeProc(t, map[string]string{"self/ns/pid": "pid:[4026532000]"}, map[string]string{"self/mountinfo": tt.mounts})
		if got, err := lockShared("/run/xtables.lock", proc); err != nil || got != tt.want {
			t.Errorf("%s: shared = %v, %v; want %v", name, got, err, tt.want)
		}
	}
}

func TestLockSharedSaysWhenItCannotTell(t *testing.T) {
	if _, err := lockShared("/run/xtables.lock", t.TempDir()); err == nil || !strings.Contains(err.Error(), "/run/xtables.lock") {
		t.Errorf("error %v, want one that names the file", err)
	}
}

func TestLockSharedWithALockOfItsOwn(t *testing.T) {
	t.Setenv(lockEnv, filepath.Join(t.TempDir(), "xtables.lock"))
	if shared, err := LockShared(); err != nil || shared {
		t.Errorf("shared = %v, %v", shared, err)
	}
}

// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/test/netnstest"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// role names the variable with the role of this test binary as another process. It is in
// the environment, so that the command line can be anything.
const role = "PEER_TEST_ROLE"

func TestMain(m *testing.M) {
	if words := strings.Fields(os.Getenv(role)); len(words) > 0 {
		if err := play(words); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println("ready")
		for {
			_ = unix.Pause() // the runtime ends a program whose goroutines all wait
		}
	}
	os.Exit(m.Run())
}

// play takes a lock ("hold NAME", "squat NAME" as an unprivileged user), plays any role as root
// without capabilities ("powerless ROLE"), prints the holder of a lock ("ask NAME"), does nothing
// ("idle") or plays a role of handoff_test.go or proof_test.go.
func play(words []string) error {
	switch words[0] {
	case "squat", "knock", "crowd":
		if err := errors.Join(syscall.Setgroups(nil), syscall.Setresuid(65534, 65534, 65534)); err != nil {
			return err
		}
	}
	switch words[0] {
	case "powerless":
		return withoutCapabilities(words[1:]...)
	case "hold", "squat":
		holder, err := newLock(words[1]).Try()
		if holder != nil {
			return fmt.Errorf("held by %v", holder)
		}
		return err
	case "ask":
		holder, err := newLock(words[1]).Try()
		if err != nil || holder == nil {
			return fmt.Errorf("%v, %w", holder, err)
		}
		return errors.New(holder.String())
	case "idle":
	default:
		return playPassing(words)
	}
	return nil
}

// withoutCapabilities plays a role as root without any capability, as one in a container may be.
func withoutCapabilities(words ...string) error {
	runtime.LockOSThread() // capabilities are those of the thread
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	err := errors.Join(unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), unix.Capset(&header, &none[0]),
		os.Setenv(role, strings.Join(words, " ")))
	if err != nil {
		return err
	}
	return syscall.Exec("/proc/self/exe", os.Args, os.Environ())
}

// start starts another process, which plays a role.
func start(t *testing.T, inside *netns.Namespace, part string, commandLine ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	if len(commandLine) > 0 {
		cmd.Args = commandLine
	}
	return startCommand(t, inside, cmd, part)
}

func startCommand(t *testing.T, inside *netns.Namespace, cmd *exec.Cmd, part string) *exec.Cmd {
	t.Helper()
	cmd.Env = append(os.Environ(), role+"="+part)
	out, err := cmd.StdoutPipe()
	if err == nil {
		if inside != nil {
			err = netnstest.Start(inside, cmd)
		} else {
			err = cmd.Start()
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	if said, _ := bufio.NewReader(out).ReadString('\n'); said != "ready\n" {
		t.Fatalf("%s: said %q", part, said)
	}
	return cmd
}

// locks counts the names that unique returned: a test that runs twice in one process may still have its first lock.
var locks atomic.Int32

// unique returns the name of a lock that no other test uses.
func unique(t *testing.T) string {
	return fmt.Sprintf("@sluice/test/%d/%d/%s", os.Getpid(), locks.Add(1), t.Name())
}

// acquire waits for a lock in the background.
func acquire(t *testing.T, l *Lock, told func(Holder)) chan error {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- l.Acquire(t.Context(), told) }()
	return done
}

func within(t *testing.T, done chan error) {
	t.Helper()
	select {
	case err := <-done:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(testenv.Patience):
		t.Fatal("timed out")
	}
}

// TestLock_EndsWithHolder: a waiting process knows the holder, and has the lock as soon as the holder ends, even if it
// is killed.
func TestLock_EndsWithHolder(t *testing.T) {
	name := unique(t)
	other := start(t, nil, "hold "+name, "sluice", "proxy", "--config=a\nb")
	l := newLock(name)
	holder, err := l.Try()
	if err != nil || holder == nil || holder.PID != other.Process.Pid || holder.Command != "sluice proxy --config=a?b" || holder.ForeignProcess {
		t.Fatalf("%+v, %v", holder, err)
	}
	told := make(chan Holder, 10)
	done := acquire(t, l, func(h Holder) { told <- h })
	if h := <-told; h != *holder {
		t.Fatalf("told %+v", h)
	}
	select {
	case err := <-done:
		t.Fatal("has it already", err)
	case <-time.After(100 * time.Millisecond):
	}
	if err := other.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	within(t, done)
	if len(told) != 0 {
		t.Errorf("told more: %v", <-told)
	}
}

// TestLock_StoppedHolder: a stopped holder keeps the lock, and can be named.
func TestLock_StoppedHolder(t *testing.T) {
	name := unique(t)
	other := start(t, nil, "hold "+name, "sluice", "run")
	if err := other.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	l := newLock(name)
	l.patience = 100 * time.Millisecond // it says nothing, however long one waits
	holder, err := l.Try()
	if err != nil || holder == nil || holder.PID != other.Process.Pid || holder.Command != "sluice run" {
		t.Fatalf("%+v, %v", holder, err)
	}
}

// TestLock_Stranger: a process without privileges can take the name of the lock, but does not count as a proxy.
func TestLock_Stranger(t *testing.T) {
	testenv.NeedsRoot(t)
	name := unique(t)
	start(t, nil, "squat "+name)
	if holder, err := newLock(name).Try(); err != nil || holder == nil || !holder.ForeignProcess {
		t.Fatalf("%+v, %v", holder, err)
	}
}

// TestLock_NonRootProxy: a proxy that is not root is no foreign process: its capabilities count, not its user.
func TestLock_NonRootProxy(t *testing.T) {
	testenv.NeedsRoot(t)
	nobody := func(capability uintptr) *syscall.SysProcAttr {
		return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}, AmbientCaps: []uintptr{capability}}
	}
	toNobody := []syscall.SysProcIDMap{{ContainerID: 0, HostID: 65534, Size: 1}}
	for as, c := range map[string]struct {
		attr     *syscall.SysProcAttr
		stranger bool
	}{
		"NET_ADMIN": {nobody(unix.CAP_NET_ADMIN), false},
		"NET_RAW":   {nobody(unix.CAP_NET_RAW), true},
		"every capability in a user namespace": {&syscall.SysProcAttr{
			Cloneflags: syscall.CLONE_NEWUSER, UidMappings: toNobody, GidMappings: toNobody,
			Credential: &syscall.Credential{NoSetGroups: true},
		}, true},
	} {
		name := unique(t) + strings.ReplaceAll(as, " ", "-")
		// The folder of the test binary is closed to others.
		cmd := exec.Command("/proc/self/exe")
		cmd.SysProcAttr = c.attr
		startCommand(t, nil, cmd, "hold "+name)
		holder, err := newLock(name).Try()
		if err != nil || holder == nil || holder.ForeignProcess != c.stranger {
			t.Errorf("with %s: %+v, %v; want stranger %t", as, holder, err, c.stranger)
		}
	}
}

// TestLock_MutualExclusion: of many waiting processes, one holds the lock at a time, and all get it.
func TestLock_MutualExclusion(t *testing.T) {
	name := unique(t)
	const waiting = 20
	var inside, most atomic.Int32
	done := make(chan error, waiting)
	for range waiting {
		go func() {
			l := newLock(name)
			err := l.Acquire(t.Context(), func(Holder) {})
			if err == nil {
				most.Store(max(most.Load(), inside.Add(1)))
				time.Sleep(time.Millisecond)
				inside.Add(-1)
				l.Release()
			}
			done <- err
		}()
	}
	for range waiting {
		within(t, done)
	}
	if most.Load() != 1 {
		t.Errorf("%d at a time", most.Load())
	}
}

// TestLock_HolderKnowsWaiters: the holder knows whether a process waits, as long as it does.
func TestLock_HolderKnowsWaiters(t *testing.T) {
	name := unique(t)
	l := newLock(name)
	if holder, err := l.Try(); holder != nil || err != nil {
		t.Fatal(holder, err)
	}
	if l.Waited() {
		t.Error("nobody waits yet")
	}
	ctx, cancel := context.WithCancel(t.Context())
	second := newLock(name)
	done := make(chan error, 1)
	go func() { done <- second.Acquire(ctx, func(Holder) {}) }()
	await(t, func() bool { return l.Waited() })
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	second.leave()
	await(t, func() bool { return !l.Waited() })
	l.Release()
	l.Release() // a second time does nothing
}

// TestLock_WaiterAndHolderEndTogether: a waiting process and the holder can end together. The end of the context may
// still be handled when the connection to the holder is already closed.
func TestLock_WaiterAndHolderEndTogether(t *testing.T) {
	for i := range 200 {
		name := fmt.Sprintf("%s/%d", unique(t), i)
		l := newLock(name)
		if holder, err := l.Try(); holder != nil || err != nil {
			t.Fatal(holder, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		second := newLock(name)
		done := make(chan error, 1)
		go func() { done <- second.Acquire(ctx, func(Holder) {}) }()
		await(t, func() bool { return l.Waited() })
		go cancel()
		l.Release()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		second.Release()
	}
}

func await(t *testing.T, right func() bool) {
	t.Helper()
	testenv.Eventually(t, "the condition holds", right)
}

// TestKernelLock_PerNamespace: two processes in different network namespaces hold a lock of the same name.
func TestKernelLock_PerNamespace(t *testing.T) {
	n := netnstest.New(t, "lock")
	name := unique(t)
	start(t, nil, "hold "+name)
	start(t, n, "hold "+name)
}

// TestKernelTurn_NoOverlap: turns do not overlap, and the wait for a turn that does not end is limited.
func TestKernelTurn_NoOverlap(t *testing.T) {
	n := netnstest.New(t, "turns")
	turn := func(patience time.Duration) (end func(), took time.Duration) {
		began := time.Now()
		_ = n.Do(func() error { end = Turn(t.Context(), patience); return nil })
		return end, time.Since(began)
	}
	end, _ := turn(time.Hour)
	if _, took := turn(50 * time.Millisecond); took < 50*time.Millisecond {
		t.Errorf("two turns at once after %v", took)
	}
	end()
	end, _ = turn(time.Hour) // nobody has it
	end()
	start(t, n, "squat "+turnName)
	turn(time.Hour) // a stranger is not waited for
}

// TestKernelLock_HolderInOtherContainer: a holder in another container has no process ID here, and is named by its
// answer.
func TestKernelLock_HolderInOtherContainer(t *testing.T) {
	testenv.NeedsRoot(t)
	name := unique(t)
	start(t, nil, "hold "+name, "sluice", "proxy", "--v=2")
	asks := exec.Command(os.Args[0])
	asks.Env = append(os.Environ(), role+"=ask "+name)
	asks.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
	said, err := asks.Output()
	if _, ended := errors.AsType[*exec.ExitError](err); !ended {
		t.Fatal(err)
	}
	if want := "a process of another PID namespace (sluice proxy --v=2)\n"; string(said) != want {
		t.Errorf("%q, want %q", said, want)
	}
}

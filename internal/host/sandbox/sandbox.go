// SPDX-License-Identifier: Apache-2.0

// Package sandbox runs this program again in private user, mount and network namespaces: inside, it is root over its
// own network; outside, nothing changes, and it needs no privilege (user_namespaces(7), network_namespaces(7)). The
// commands run, demo and sandbox call it.
package sandbox

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// marker is set in the environment of the program inside, and passed as well if that program has the listener of Run.
const (
	marker = "SLUICE_SANDBOX"
	passed = "SLUICE_SANDBOX_LISTENER"
)

// self is this program, even if its file was replaced or cannot be reached by name
// (proc_pid_exe(5)).
const self = "/proc/self/exe"

// Inside reports whether this process runs in the sandbox.
func Inside() bool { return os.Getenv(marker) != "" }

// Run starts this program with the same arguments inside a new sandbox, forwards signals, waits for it, and returns its
// exit status. If there is a listener, the program inside accepts its connections from outside: a socket stays in the
// network namespace in which it was made.
func Run(listener *os.File) (status int, err error) {
	// The kernel sends Pdeathsig (below) when the thread that started the child ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.Command(self, os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(os.Environ(), marker+"=1")
	if listener != nil {
		cmd.Env, cmd.ExtraFiles = append(cmd.Env, passed+"=3"), []*os.File{listener} // 3 is the first of them
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS | syscall.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
		// The sandbox ends with its parent, however that ends.
		Pdeathsig: syscall.SIGKILL,
	}
	// A terminal signals both processes; the child decides when to end.
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)
	if err := cmd.Start(); err != nil {
		return 1, explain(err)
	}
	go func() {
		for s := range signals {
			_ = cmd.Process.Signal(s)
		}
	}()
	err = cmd.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		if code := exit.ExitCode(); code >= 0 {
			return code, nil
		}
		return 1, fmt.Errorf("sandbox: ended by %v", exit)
	}
	return 0, err
}

// Listener returns the listener of Run, once; nil without one.
func Listener() *os.File {
	if !Inside() || os.Getenv(passed) == "" {
		return nil
	}
	_ = os.Unsetenv(passed) // programs that this one starts do not get it
	unix.CloseOnExec(3)
	return os.NewFile(3, "listener")
}

func explain(err error) error {
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EUSERS) {
		return fmt.Errorf("sandbox: unprivileged user namespaces are disabled (%w); "+
			"allow them (sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone, "+
			"kernel.apparmor_restrict_unprivileged_userns=0) or run as root", err)
	}
	return fmt.Errorf("sandbox: cannot start: %w", err)
}

// OwnUserNamespace reports whether this process runs in a user namespace other than the
// initial one, which maps every user to itself (user_namespaces(7)).
func OwnUserNamespace() bool {
	text, err := os.ReadFile("/proc/self/uid_map")
	return err == nil && strings.Join(strings.Fields(string(text)), " ") != "0 0 4294967295"
}

// Enter prepares the sandbox; call it once, first thing inside. It mounts a private /run, so that the lock file of
// iptables is private, and brings the loopback up. It fails outside of a sandbox, even if the environment contains the
// marker.
func Enter() error {
	if !Inside() {
		return errors.New("sandbox: not inside")
	}
	if !OwnUserNamespace() {
		return fmt.Errorf("sandbox: %s is set in the environment, but this is not a sandbox; unset it", marker)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("sandbox: cannot make the mounts private: %w", err)
	}
	if err := unix.Mount("tmpfs", "/run", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755,size=16m"); err != nil {
		return fmt.Errorf("sandbox: cannot mount a private /run: %w", err)
	}
	if err := loopbackUp(); err != nil {
		return fmt.Errorf("sandbox: cannot bring the loopback up: %w", err)
	}
	return nil
}

// loopbackUp brings lo up, which also gives it its addresses.
func loopbackUp() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	return netlink.LinkSetUp(lo)
}

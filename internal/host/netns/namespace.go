// SPDX-License-Identifier: Apache-2.0

// Package netns makes small networks out of Linux network namespaces, for the sandbox.
//
// A [Namespace] is a host with its own links, routes, sockets and packet filter. A [Plan] describes
// routers and the hosts behind them; [Build] makes that [Network]:
//
//	client 10.0.1.2 ──── veth ──── node 10.0.1.1 │ 10.0.2.1 ──── veth ──── pod 10.0.2.2
//
// Package lab builds the network of the sandbox and of the demo with it. Tests use it as well; package netnstest has
// servers and clients for them.
//
// # Privileges
//
// No external program is run to build a network. The process needs CAP_SYS_ADMIN and CAP_NET_ADMIN
// in its user namespace: either it is root, or it was started inside a user namespace in which it
// is mapped to root (unshare --user --map-root-user --net). In the second case nothing on the
// machine itself changes. Where the kernel does not let the process return to the namespace it came
// from (a user namespace without its own network namespace), everything here works too, at the
// price of one operating system thread per call.
//
// # Concurrency
//
// All methods may be called from several goroutines at the same time. A network namespace belongs to an
// operating system thread, so [Namespace.Do] borrows one and gives it back; the calling goroutine
// never moves. The main thread is never borrowed, because /proc/self and /proc/net show what *it*
// sees, to the whole process.
//
// A socket stays in the namespace it was created in, regardless of which thread uses it later. So do child
// processes. A namespace therefore lives on in the kernel after [Namespace.Close] for as long as a
// socket or a process is left in it.
package netns

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Namespace is one network namespace, held open by a file descriptor.
//
// Invariant: from a successful New until Close, the namespace exists, its loopback is up and
// routing (a netlink socket inside it) is open.
type Namespace struct {
	name    string
	file    *os.File
	path    string
	routing *netlink.Handle
	ipv6    bool // the kernel has IPv6
}

// New makes a network namespace with its loopback up. The name is used in messages only; two
// namespaces may share one.
func New(name string) (*Namespace, error) {
	n := &Namespace{name: name}
	err := onThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("unshare: %w%s", err, privilegeHint(err))
		}
		return n.hold()
	})
	if err != nil {
		return nil, fmt.Errorf("netns %s: make namespace: %w", name, err)
	}
	return n.furnished()
}

// Current returns the namespace that this process runs in, for a program that was started in a private one (a sandbox).
// It brings the loopback up, as New does.
func Current(name string) (*Namespace, error) {
	n := &Namespace{name: name}
	if err := onThread(n.hold); err != nil {
		return nil, fmt.Errorf("netns %s: take hold of the current namespace: %w", name, err)
	}
	return n.furnished()
}

// hold opens the namespace of the calling thread.
func (n *Namespace) hold() error {
	file, err := os.Open(threadNamespace)
	if err != nil {
		return err
	}
	routing, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return errors.Join(fmt.Errorf("open a routing socket: %w", err), file.Close())
	}
	n.file, n.routing = file, routing
	return nil
}

// furnished makes a held namespace usable, or closes it after an error.
func (n *Namespace) furnished() (*Namespace, error) {
	// Fd is safe to keep as a number: the file is never handed out and is closed in Close only.
	n.path = fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), n.file.Fd())
	err := n.prepareIPv6()
	if err == nil {
		err = n.setUp("lo")
	}
	if err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

// prepareIPv6 makes IPv6 work immediately on links made later, regardless of the machine's settings.
// A router sends no neighbor solicitation before the link-local address of its interface has
// passed duplicate detection (ndisc_send_ns in the kernel's net/ipv6/ndisc.c), which would hold up
// the first packets through it by two seconds.
func (n *Namespace) prepareIPv6() error {
	for _, conf := range []string{"all", "default"} {
		for _, key := range []string{"accept_dad", "disable_ipv6"} {
			err := n.Sysctl("net.ipv6.conf."+conf+"."+key, "0")
			if errors.Is(err, os.ErrNotExist) {
				return nil // a kernel without IPv6; n.ipv6 stays false
			}
			if err != nil {
				return err
			}
		}
	}
	n.ipv6 = true
	return nil
}

func privilegeHint(err error) string {
	if errors.Is(err, unix.EPERM) {
		return "; be root, or run inside: unshare --user --map-root-user --net"
	}
	return ""
}

// Name returns the name given to New.
func (n *Namespace) Name() string { return n.name }

// Path returns a file name under which other processes can open the namespace (nsenter --net=PATH)
// until Close or the end of this process.
func (n *Namespace) Path() string { return n.path }

// Close closes the namespace. Sockets and processes inside it continue, and the kernel keeps the namespace until the
// last of them ends. A second Close returns an error matching os.ErrClosed.
func (n *Namespace) Close() error {
	if err := n.file.Close(); err != nil {
		return n.errorf("close: %w", err)
	}
	n.routing.Close()
	return nil
}

// Do runs f on an operating system thread inside the namespace and returns its error as it is.
//
// Only f itself is inside: goroutines that f starts are not. f must leave the lock on its thread
// alone (no runtime.UnlockOSThread). f runs on a separate goroutine, so a t.Fatal inside it ends
// only that; Do then returns an error.
func (n *Namespace) Do(f func() error) error {
	return onThread(func() error {
		if err := n.enter(); err != nil {
			return err
		}
		return f()
	})
}

// enter moves the calling thread into the namespace.
func (n *Namespace) enter() error {
	err := n.withFD(func(fd int) error { return unix.Setns(fd, unix.CLONE_NEWNET) })
	if err != nil {
		return n.errorf("enter: %w", err)
	}
	return nil
}

// withFD calls f with the namespace's descriptor, which stays open until f returns. The descriptor
// handed to f must not outlive it: after Close its number may belong to another file.
func (n *Namespace) withFD(f func(fd int) error) error {
	conn, err := n.file.SyscallConn()
	if err != nil {
		return err
	}
	var resultErr error
	if err := conn.Control(func(fd uintptr) { resultErr = f(int(fd)) }); err != nil {
		// Control fails for one reason only, with an error of package poll that no caller can match.
		return os.ErrClosed
	}
	return resultErr
}

// errorf says in which namespace something failed.
func (n *Namespace) errorf(format string, args ...any) error {
	return fmt.Errorf("netns "+n.name+": "+format, args...)
}

// threadNamespace names the network namespace of the thread that opens it.
const threadNamespace = "/proc/thread-self/ns/net"

// errAbandoned is returned when the function left by runtime.Goexit, as t.Fatal does.
var errAbandoned = errors.New("netns: the function ended its goroutine (t.Fatal or runtime.Goexit) instead of returning")

// onThread runs f on an operating system thread that f may move to another network namespace, and
// waits for it. Afterwards the thread is moved back, or given up where that is not possible.
func onThread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		err := errAbandoned
		defer func() { done <- err }()
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			// This is the main thread, which must stay where it is. Holding on to it while waiting
			// keeps the scheduler from picking it again for the goroutine started here.
			err = onThread(f)
			runtime.UnlockOSThread()
			return
		}
		origin, openErr := os.Open(threadNamespace)
		if openErr != nil {
			runtime.UnlockOSThread()
			err = fmt.Errorf("netns: find the namespace to return to: %w", openErr)
			return
		}
		defer func() {
			// Leaving the goroutine locked makes the runtime end its thread. A failed return is
			// therefore harmless, and expected in a user namespace that did not bring its own
			// network.
			if unix.Setns(int(origin.Fd()), unix.CLONE_NEWNET) == nil {
				runtime.UnlockOSThread()
			}
			_ = origin.Close() // opened for reading, nothing can be lost
		}()
		err = f()
	}()
	return <-done
}

// Sysctl sets a kernel parameter of the namespace, named with dots or slashes: net.ipv4.ip_forward,
// net/ipv4/conf/eth0.1/rp_filter.
func (n *Namespace) Sysctl(key, value string) error {
	return n.Sysctls(map[string]string{key: value})
}

// Sysctls sets several kernel parameters of the namespace, in no particular order. Entering and leaving the namespace
// once costs more than setting a value. It stops at the first error.
func (n *Namespace) Sysctls(values map[string]string) error {
	return n.Do(func() error {
		for key, value := range values {
			path, err := n.sysctlPath(key)
			if err != nil {
				return err
			}
			if err := os.WriteFile(path, []byte(value), 0); err != nil {
				return n.errorf("set %s to %q: %w", key, value, err)
			}
		}
		return nil
	})
}

// sysctlPath rejects parameters outside /proc/sys/net: the rest of the tree belongs to the machine.
//
// /proc/sys/net shows each *thread* its own namespace (net_ctl_root in the kernel's
// net/sysctl_net.c looks at the calling task), so the plain path is right inside Do; no
// /proc/thread-self is needed.
func (n *Namespace) sysctlPath(key string) (string, error) {
	if !strings.Contains(key, "/") {
		key = strings.ReplaceAll(key, ".", "/")
	}
	path := filepath.Join("/proc/sys", key)
	if !strings.HasPrefix(path, "/proc/sys/net/") {
		return "", n.errorf("kernel parameter %s is not under net, it belongs to the whole machine", key)
	}
	return path, nil
}

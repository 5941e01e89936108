package netns

import (
	"errors"
	"fmt"
	"os"

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

// Current gives the namespace that this process runs in, for a program that was started in one of its
// own (a sandbox). Its loopback is brought up like that of a new one.
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

// furnished makes a held namespace usable, or lets go of it.
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

// prepareIPv6 makes IPv6 work at once on links made later, whatever the machine's own settings are. A
// router sends no neighbour solicitation before the link-local address of its interface has passed
// duplicate detection (ndisc_send_ns in the kernel's net/ipv6/ndisc.c), which would hold up the first
// packets through it by two seconds.
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

// Close lets go of the namespace. Sockets and processes inside it go on, and so does the kernel's
// namespace until the last of them ends. A second Close returns an error matching os.ErrClosed.
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
// alone (no runtime.UnlockOSThread). f runs on a goroutine of its own, so a t.Fatal inside it ends
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
		// Control fails for one reason only, with an error of package poll that nobody can match.
		return os.ErrClosed
	}
	return resultErr
}

// errorf says in which namespace something failed.
func (n *Namespace) errorf(format string, args ...any) error {
	return fmt.Errorf("netns "+n.name+": "+format, args...)
}

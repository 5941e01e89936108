package faults

import (
	"fmt"
	"os"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane/nftables"
	"github.com/sluice-proxy/sluice/dataplane/nftables/wire"
	"github.com/sluice-proxy/sluice/internal/host/netns"
)

// socket is a connection to nf_tables whose sending can be made to fail.
type socket struct {
	*wire.Socket
	switchboard *switchboard
}

var _ nftables.Socket = (*socket)(nil)

// switchboard decides what becomes of the transactions of one domain.
type switchboard struct {
	mu sync.Mutex
	// decide is asked before each transaction; an error means that the kernel
	// does not take it. Nil lets all pass.
	decide func() error
	// sockets are those that were opened.
	sockets []*wire.Socket
}

// open is for nftables.WriterConfig.
func (b *switchboard) open() (nftables.Socket, error) {
	s, err := wire.Open()
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sockets = append(b.sockets, s)
	return &socket{s, b}, nil
}

// set changes what is decided.
func (b *switchboard) set(decide func() error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.decide = decide
}

// Commit is for nftables.Socket.
func (s *socket) Commit(t *wire.Transaction) ([]*wire.Refusal, error) {
	s.switchboard.mu.Lock()
	decide := s.switchboard.decide
	s.switchboard.mu.Unlock()
	if decide != nil {
		if err := decide(); err != nil {
			return nil, &wire.NotTakenError{Err: err}
		}
	}
	return s.Socket.Commit(t)
}

// narrow gives the receive buffer of a domain's socket the smallest size there is,
// so that the kernel has no room for more than a few answers to a transaction.
func (b *switchboard) narrow(node *netns.Namespace) error {
	b.mu.Lock()
	port := b.sockets[len(b.sockets)-1].Port()
	b.mu.Unlock()
	return node.Do(func() error {
		// Ports are numbered anew in each namespace, which the cookie tells
		// apart.
		probe, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
		if err != nil {
			return err
		}
		defer unix.Close(probe) //nolint:errcheck // nothing was written
		cookie, err := unix.GetsockoptUint64(probe, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
		if err != nil {
			return err
		}
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			return err
		}
		for _, e := range entries {
			if fd, err := strconv.Atoi(e.Name()); err == nil && isSocket(fd, port, cookie) {
				return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 0)
			}
		}
		return fmt.Errorf("no socket has port %d in namespace %x", port, cookie)
	})
}

// isSocket tells whether a descriptor is a socket to nf_tables in some namespace.
func isSocket(fd int, port uint32, cookie uint64) bool {
	if protocol, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PROTOCOL); err != nil || protocol != unix.NETLINK_NETFILTER {
		return false
	}
	if at, err := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE); err != nil || at != cookie {
		return false
	}
	name, err := unix.Getsockname(fd)
	at, ok := name.(*unix.SockaddrNetlink)
	return err == nil && ok && at.Pid == port
}

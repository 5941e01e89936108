package faults

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	nftkernel "github.com/sluice-proxy/sluice/dataplane/nftables/kernel"
	"github.com/sluice-proxy/sluice/dataplane/nftables/wire"
	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/internal/netlink"
	"github.com/sluice-proxy/sluice/service"
)

// socket is a connection to nf_tables whose sending can be made to fail.
type socket struct {
	*wire.Socket
	gate *socketGate
}

var _ nftkernel.Socket = (*socket)(nil)

// socketGate decides which transactions of a domain reach the kernel.
type socketGate struct {
	mu sync.Mutex
	// decide is called before each transaction. If it returns an error, the kernel does not take
	// the transaction. Nil lets all pass.
	decide func() error
	// sockets are the open ones, the writer's own first.
	sockets []*wire.Socket
}

// open is for nftkernel.WriterConfig.
func (b *socketGate) open() (nftkernel.Socket, error) {
	s, err := wire.Open()
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sockets = append(b.sockets, s)
	return &socket{s, b}, nil
}

// Close implements nftkernel.Socket.
func (s *socket) Close() error {
	s.gate.mu.Lock()
	s.gate.sockets = slices.DeleteFunc(s.gate.sockets, func(open *wire.Socket) bool { return open == s.Socket })
	s.gate.mu.Unlock()
	return s.Socket.Close()
}

// set changes the decision.
func (b *socketGate) set(decide func() error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.decide = decide
}

// Commit implements nftkernel.Socket.
func (s *socket) Commit(t *wire.Transaction) ([]*wire.Rejection, error) {
	s.gate.mu.Lock()
	decide := s.gate.decide
	s.gate.mu.Unlock()
	if decide != nil {
		if err := decide(); err != nil {
			return nil, &wire.NotTakenError{Err: err}
		}
	}
	return s.Socket.Commit(t)
}

// narrow makes the receive buffer of a domain's socket as small as possible, so that it holds only
// a few answers to a transaction.
func (b *socketGate) narrow(node *netns.Namespace) error {
	b.mu.Lock()
	port := b.sockets[0].Port()
	b.mu.Unlock()
	return node.Do(func() error {
		// Each namespace numbers its ports anew. The cookie identifies the namespace.
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

// isSocket reports whether a descriptor is the nf_tables socket with a port in a namespace.
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

// monitor records when the kernel announces changes of a family's tables, by any program.
type monitor struct {
	mu    sync.Mutex
	times []time.Time
}

func newMonitor(t *testing.T, node *netns.Namespace, family service.Family) *monitor {
	t.Helper()
	m := &monitor{}
	var listener *netlink.TableListener
	check(t, node.Do(func() (err error) {
		protocol := service.PerFamily[uint8]{service.IPv4: unix.NFPROTO_IPV4, service.IPv6: unix.NFPROTO_IPV6}[family]
		listener, err = netlink.ListenTables(protocol, 0)
		return err
	}))
	note := func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.times = append(m.times, time.Now())
	}
	go func() { _ = listener.Run(t.Context(), func(netlink.Netfilter) { note() }, note) }()
	t.Cleanup(func() { check(t, listener.Close()) })
	return m
}

// first waits for the first announcement after a moment, and returns its time.
func (m *monitor) first(t *testing.T, after time.Time) time.Time {
	t.Helper()
	for began := time.Now(); time.Since(began) < eventMax; time.Sleep(time.Millisecond) {
		if at, ok := m.since(after); ok {
			return at
		}
	}
	t.Fatal("the kernel has announced nothing")
	return time.Time{}
}

func (m *monitor) since(after time.Time) (first time.Time, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if at := slices.IndexFunc(m.times, after.Before); at >= 0 {
		return m.times[at], true
	}
	return time.Time{}, false
}

// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"errors"
	"io"
	"maps"
	"net/netip"
	"os"
	"slices"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/service"
)

// Sockets are the previous owner's listening sockets, kept until a new listener at the same place
// takes them, so that the host refuses no client in between. Both owners may serve clients for a
// while. The zero value has none. Any goroutine may use it.
type Sockets struct {
	mu      sync.Mutex
	waiting map[Place]*os.File
}

// Put adds a socket, which belongs to the Sockets from then on.
func (s *Sockets) Put(p Place, socket *os.File) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if former := s.waiting[p]; former != nil {
		_ = former.Close() // the socket stays open: this is only a copy of its descriptor
	}
	if s.waiting == nil {
		s.waiting = make(map[Place]*os.File)
	}
	s.waiting[p] = socket
}

// take returns the socket of a place, nil if there is none.
func (s *Sockets) take(p Place) *os.File {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	socket := s.waiting[p]
	delete(s.waiting, p)
	return socket
}

// Files returns the sockets, in no order. They still belong to the Sockets, and stay open until Close.
func (s *Sockets) Files() []*os.File {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.waiting))
}

// Close closes the sockets that were not taken, and returns their number.
func (s *Sockets) Close() (closed int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, socket := range s.waiting {
		_ = socket.Close() // nothing was written
	}
	closed, s.waiting = len(s.waiting), nil
	return closed
}

// Each calls visit with each open listener. Any goroutine may call it.
func (r *Relay) Each(visit func(*Listener)) {
	r.listeners.Range(func(l, _ any) bool {
		visit(l.(*Listener))
		return true
	})
}

// Share puts a copy of the listener's socket into a pool.
func (l *Listener) Share(pool *Sockets) error {
	var copied int
	var failed error
	err := l.Control(func(fd uintptr) { copied, failed = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0) })
	if err = errors.Join(err, failed); err != nil {
		return err
	}
	pool.Put(l.place, os.NewFile(uintptr(copied), l.place.String()))
	return nil
}

// Drain stops taking new clients; the new owner of the socket serves them. Connections and sessions
// continue.
func (l *Listener) Drain() {
	if udp, ok := l.server.(*udpServer); ok {
		udp.drain()
	} else {
		l.Close()
	}
}

// PlaceOf returns where a socket listens, and an error if it does not.
func PlaceOf(socket *os.File) (p Place, err error) {
	fd := int(socket.Fd())
	kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	if err != nil {
		return p, os.NewSyscallError("getsockopt SO_TYPE", err)
	}
	switch listening, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN); {
	case err != nil:
		return p, os.NewSyscallError("getsockopt SO_ACCEPTCONN", err)
	case kind == unix.SOCK_STREAM && listening == 1:
		p.Protocol = service.TCP
	case kind == unix.SOCK_DGRAM:
		p.Protocol = service.UDP
	default:
		return p, errors.New("the socket does not listen")
	}
	name, err := unix.Getsockname(fd)
	switch at := name.(type) {
	case *unix.SockaddrInet4:
		p.At = netip.AddrPortFrom(netip.AddrFrom4(at.Addr), uint16(at.Port))
	case *unix.SockaddrInet6:
		p.At = netip.AddrPortFrom(netip.AddrFrom16(at.Addr), uint16(at.Port))
	default:
		err = errors.Join(err, errors.New("the socket is not of IPv4 or IPv6"))
	}
	return p, err
}

// inherit returns the previous owner's socket at a place, and false if there is none that can be
// used. The function copy makes a socket of package net from a file.
func inherit[S syscall.Conn, I io.Closer](s *sockets, p Place, o Options, copy func(*os.File) (I, error)) (socket S, ok bool) {
	file := s.waiting.take(p)
	if file == nil {
		return socket, false
	}
	defer file.Close() // the socket has a copy
	copied, err := copy(file)
	if err != nil {
		return socket, false
	}
	if socket, ok = any(copied).(S); ok && o.prepare(socket) == nil {
		return socket, true
	}
	_ = copied.Close() // the caller opens a new one
	return socket, false
}

// prepare removes the previous owner's filter from a socket, and then calls Control with it, as for a
// new socket.
func (o Options) prepare(socket syscall.Conn) error {
	var failed error
	err := controlled(socket, func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_DETACH_FILTER, 0)
		if errors.Is(failed, unix.ENOENT) {
			failed = nil // it has none
		}
		if failed == nil && o.Control != nil {
			failed = o.Control(fd)
		}
	})
	return errors.Join(err, failed)
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"net/netip"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/service"
)

// The calls here are raw: the runtime takes no notice of them, so it neither adds to what is measured
// nor gives the processor away. No call of theirs blocks for long: with client and server on one
// processor, a packet has arrived by the time the call that sends it returns. (The kernel carries it
// through all three namespaces before it leaves the sending call.)

// socketPatience bounds how long a socket waits for a packet that was lost.
const socketPatience = 500 * time.Millisecond

// address is a socket address as the kernel takes it.
type address struct {
	storage unix.RawSockaddrAny
	size    uintptr
	family  int
	// from is the address that connects here, or nil.
	from *address
}

func newAddress(to netip.AddrPort) *address {
	port := [2]byte{byte(to.Port() >> 8), byte(to.Port())}
	a := &address{}
	if to.Addr().Is4() {
		a.family, a.size = unix.AF_INET, unix.SizeofSockaddrInet4
		*(*unix.RawSockaddrInet4)(unsafe.Pointer(&a.storage)) = unix.RawSockaddrInet4{
			Family: unix.AF_INET, Port: *(*uint16)(unsafe.Pointer(&port)), Addr: to.Addr().As4()}
		return a
	}
	a.family, a.size = unix.AF_INET6, unix.SizeofSockaddrInet6
	*(*unix.RawSockaddrInet6)(unsafe.Pointer(&a.storage)) = unix.RawSockaddrInet6{
		Family: unix.AF_INET6, Port: *(*uint16)(unsafe.Pointer(&port)), Addr: to.Addr().As16()}
	return a
}

// failed says which call failed.
func failed(call string, errno unix.Errno) error {
	if errno == 0 {
		return nil
	}
	return fmt.Errorf("%s: %w", call, errno)
}

var (
	timeout = unix.NsecToTimeval(int64(socketPatience))
	linger  = unix.Linger{Onoff: 1}
)

func setTimeout(fd, option int) unix.Errno {
	_, _, errno := unix.RawSyscall6(unix.SYS_SETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, uintptr(option),
		uintptr(unsafe.Pointer(&timeout)), unsafe.Sizeof(timeout), 0)
	return errno
}

// connect opens a socket of TCP or UDP in the namespace of the calling thread, and connects it.
func connect(to *address, kind int) (int, unix.Errno) {
	socket, _, errno := unix.RawSyscall(unix.SYS_SOCKET, uintptr(to.family), uintptr(kind|unix.SOCK_CLOEXEC), 0)
	if errno != 0 {
		return -1, errno
	}
	// A connection waits as long as it may send, a question as long as it may receive.
	wait := unix.SO_RCVTIMEO
	if kind == unix.SOCK_STREAM {
		wait = unix.SO_SNDTIMEO
	}
	errno = setTimeout(int(socket), wait)
	if from := to.from; errno == 0 && from != nil {
		_, _, errno = unix.RawSyscall(unix.SYS_BIND, socket, uintptr(unsafe.Pointer(&from.storage)), from.size)
	}
	if errno == 0 {
		_, _, errno = unix.RawSyscall(unix.SYS_CONNECT, socket, uintptr(unsafe.Pointer(&to.storage)), to.size)
	}
	if errno != 0 {
		closeAll(int(socket))
		return -1, errno
	}
	return int(socket), 0
}

func dial(to *address, kind int) (int, error) {
	fd, errno := connect(to, kind)
	return fd, failed("connect", errno)
}

// reset closes a connection with a RST, so that no port stays in use.
func reset(fd int) error {
	_, _, errno := unix.RawSyscall6(unix.SYS_SETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_LINGER,
		uintptr(unsafe.Pointer(&linger)), unsafe.Sizeof(linger), 0)
	closeAll(fd)
	return failed("set linger", errno)
}

func closeAll(fds ...int) {
	for _, fd := range fds {
		if fd >= 0 {
			_, _, _ = unix.RawSyscall(unix.SYS_CLOSE, uintptr(fd), 0, 0)
		}
	}
}

func sendRaw(fd int, b []byte) unix.Errno {
	_, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(fd),
		uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), unix.MSG_NOSIGNAL, 0, 0)
	return errno
}

func send(fd int, b []byte) error { return failed("send", sendRaw(fd, b)) }

func receiveRaw(fd int, b []byte) (int, unix.Errno) {
	n, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd),
		uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), 0, 0, 0)
	return int(n), errno
}

// receive reads exactly one message of the size of b.
func receive(fd int, b []byte) error {
	n, errno := receiveRaw(fd, b)
	if errno == 0 && n != len(b) {
		return fmt.Errorf("receive: %d of %d bytes", n, len(b))
	}
	return failed("receive", errno)
}

// accept takes the next connection of a listener.
func accept(listener int) (int, error) {
	fd, _, errno := unix.RawSyscall6(unix.SYS_ACCEPT4, uintptr(listener), 0, 0, unix.SOCK_CLOEXEC, 0, 0)
	if errno != 0 {
		return -1, failed("accept", errno)
	}
	return int(fd), nil
}

// drain takes what an exchange that failed has left.
func (s server) drain() error {
	for _, fd := range []int{s.listener, s.datagrams} {
		if err := unix.SetNonblock(fd, true); err != nil {
			return err
		}
	}
	for {
		fd, err := accept(s.listener)
		if err != nil {
			break
		}
		closeAll(fd)
	}
	var b [payload]byte
	for {
		if _, errno := receiveRaw(s.datagrams, b[:]); errno != 0 {
			break
		}
	}
	return errors.Join(unix.SetNonblock(s.listener, false), unix.SetNonblock(s.datagrams, false))
}

// localEnd returns the address at which the server's end of a connection is.
func localEnd(fd int) (netip.AddrPort, error) {
	sa, err := unix.Getsockname(fd)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("getsockname: %w", err)
	}
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(sa.Port)), nil
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(sa.Addr), uint16(sa.Port)), nil
	}
	return netip.AddrPort{}, fmt.Errorf("getsockname: %T", sa)
}

// listen opens the sockets of all pods, in the namespace of the calling thread.
func listen(f service.Family) (s server, err error) {
	s = server{-1, -1}
	bind := func(kind int, port uint16) (int, error) {
		family, at := unix.AF_INET, unix.Sockaddr(&unix.SockaddrInet4{Port: int(port)})
		if f == service.IPv6 {
			family, at = unix.AF_INET6, &unix.SockaddrInet6{Port: int(port)}
		}
		fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return -1, fmt.Errorf("socket: %w", err)
		}
		if f == service.IPv6 {
			err = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1)
		}
		if err == nil {
			err = unix.Bind(fd, at)
		}
		return fd, errors.Join(err, failed("set timeout", setTimeout(fd, unix.SO_RCVTIMEO)))
	}
	if s.listener, err = bind(unix.SOCK_STREAM, targetTCP); err != nil {
		return s, err
	}
	if err := unix.Listen(s.listener, 4096); err != nil {
		return s, err
	}
	if s.datagrams, err = bind(unix.SOCK_DGRAM, targetUDP); err != nil {
		return s, err
	}
	// The answer to a datagram leaves from the address that it was sent to.
	if f == service.IPv4 {
		return s, unix.SetsockoptInt(s.datagrams, unix.IPPROTO_IP, unix.IP_PKTINFO, 1)
	}
	return s, unix.SetsockoptInt(s.datagrams, unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1)
}

// envelope receives a datagram with the addresses of both ends, and sends one back.
type envelope struct {
	header  unix.Msghdr
	vector  unix.Iovec
	peer    [unix.SizeofSockaddrInet6]byte
	control [64]byte
	body    []byte
}

func newEnvelope(size int) *envelope {
	e := &envelope{body: make([]byte, size)}
	e.vector.Base = &e.body[0]
	e.vector.SetLen(size)
	e.header.Iov, e.header.Name, e.header.Control = &e.vector, &e.peer[0], &e.control[0]
	e.header.SetIovlen(1)
	return e
}

func (e *envelope) receive(fd int) error {
	e.header.Namelen = uint32(len(e.peer))
	e.header.SetControllen(len(e.control))
	n, _, errno := unix.RawSyscall(unix.SYS_RECVMSG, uintptr(fd), uintptr(unsafe.Pointer(&e.header)), 0)
	if errno == 0 && int(n) != len(e.body) {
		return fmt.Errorf("receive: %d of %d bytes", n, len(e.body))
	}
	return failed("receive", errno)
}

// answer sends the received datagram back, from the address that it was sent to, through any
// interface.
func (e *envelope) answer(fd int) error {
	head := (*unix.Cmsghdr)(unsafe.Pointer(&e.control[0]))
	data := e.control[unix.CmsgLen(0):]
	if head.Level == unix.IPPROTO_IP {
		(*unix.Inet4Pktinfo)(unsafe.Pointer(&data[0])).Ifindex = 0
	} else {
		(*unix.Inet6Pktinfo)(unsafe.Pointer(&data[0])).Ifindex = 0
	}
	_, _, errno := unix.RawSyscall(unix.SYS_SENDMSG, uintptr(fd), uintptr(unsafe.Pointer(&e.header)), unix.MSG_NOSIGNAL)
	return failed("answer", errno)
}

// sentTo returns the address that the received datagram was sent to.
func (e *envelope) sentTo() netip.Addr {
	head := (*unix.Cmsghdr)(unsafe.Pointer(&e.control[0]))
	data := e.control[unix.CmsgLen(0):]
	if head.Level == unix.IPPROTO_IP {
		return netip.AddrFrom4((*unix.Inet4Pktinfo)(unsafe.Pointer(&data[0])).Addr)
	}
	return netip.AddrFrom16((*unix.Inet6Pktinfo)(unsafe.Pointer(&data[0])).Addr)
}

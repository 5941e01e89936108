package main

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// knocker sends single SYNs to one target and awaits a refusal, over a raw socket. The kernel's own
// connect holds the socket's lock while the packet travels. With client and node on one processor,
// an ICMP error arrives within that time, and the kernel does not act on it until the next SYN, a
// second later (tcp_v4_err in net/ipv4/tcp_ipv4.c).
type knocker struct {
	fd      int
	segment [tcpHeader]byte
	sum     uint32 // of the addresses and the length, which the checksum covers, too
	packet  [128]byte
	v4      bool
}

const (
	tcpHeader = 20
	flagSYN   = 2
	flagRST   = 4
)

// knock opens the socket, in the namespace of the calling thread.
func knock(to netip.AddrPort) (*knocker, error) {
	k := &knocker{v4: to.Addr().Is4()}
	family, at := unix.AF_INET6, unix.Sockaddr(&unix.SockaddrInet6{Addr: to.Addr().As16()})
	if k.v4 {
		family, at = unix.AF_INET, &unix.SockaddrInet4{Addr: to.Addr().As4()}
	}
	var err error
	if k.fd, err = unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP); err != nil {
		return nil, fmt.Errorf("raw socket: %w", err)
	}
	if errno := setTimeout(k.fd, unix.SO_RCVTIMEO); errno != 0 {
		return k, failed("set timeout", errno)
	}
	if err := unix.Connect(k.fd, at); err != nil {
		return k, fmt.Errorf("connect %s: %w", to.Addr(), err)
	}
	from, err := localEnd(k.fd)
	if err != nil {
		return k, err
	}
	for _, a := range []netip.Addr{from.Addr(), to.Addr()} {
		for b := a.AsSlice(); len(b) > 0; b = b[2:] {
			k.sum += uint32(binary.BigEndian.Uint16(b))
		}
	}
	k.sum += unix.IPPROTO_TCP + tcpHeader
	binary.BigEndian.PutUint16(k.segment[2:], to.Port())
	k.segment[12], k.segment[13] = tcpHeader/4<<4, flagSYN
	binary.BigEndian.PutUint16(k.segment[14:], 0xffff)
	return k, nil
}

// once sends a SYN from a port and returns nil if it was refused.
func (k *knocker) once(port uint16) error {
	binary.BigEndian.PutUint16(k.segment[0:], port)
	binary.BigEndian.PutUint16(k.segment[16:], 0)
	binary.BigEndian.PutUint16(k.segment[16:], k.checksum())
	// Where the node itself knocks, a refused packet is a failed call as well.
	if errno := sendRaw(k.fd, k.segment[:]); errno != 0 && errno != unix.EPERM {
		return failed("send", errno)
	}
	n, errno := receiveRaw(k.fd, k.packet[:])
	if errno == unix.ECONNREFUSED {
		return nil
	}
	if errno != 0 {
		return failed("await a refusal", errno)
	}
	answer := k.packet[:n]
	if k.v4 && n > 0 {
		answer = answer[min(n, int(answer[0]&15)*4):]
	}
	if len(answer) < tcpHeader || answer[13]&flagRST == 0 {
		return fmt.Errorf("answered by %x, want a refusal", answer)
	}
	return nil
}

func (k *knocker) checksum() uint16 {
	sum := k.sum
	for i := 0; i < tcpHeader; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(k.segment[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

// refusals knocks at each target, from another port each time.
type refusals struct {
	knockers []*knocker
	targets  []target
	port     uint16
}

func beginRefusals(s *scene) (traffic, error) {
	r := &refusals{targets: s.targets}
	for _, t := range s.targets {
		k, err := knock(t.at)
		if k != nil {
			r.knockers = append(r.knockers, k)
		}
		if err != nil {
			return r, err
		}
	}
	return r, nil
}

func (r *refusals) turn() (int, error) {
	for i, k := range r.knockers {
		r.port++
		if err := k.once(r.port | 1<<15); err != nil {
			return 0, fmt.Errorf("%s: %w", r.targets[i].at, err)
		}
	}
	return len(r.knockers), nil
}

func (r *refusals) end() {
	for _, k := range r.knockers {
		closeAll(k.fd)
	}
}

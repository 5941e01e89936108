// SPDX-License-Identifier: Apache-2.0

package netnstest

import (
	"errors"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
)

// wantDestination makes the kernel report the address that each datagram was sent to.
func wantDestination(udp *net.UDPConn, v6 bool) error {
	level, option := unix.IPPROTO_IP, unix.IP_PKTINFO
	if v6 {
		level, option = unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO
	}
	raw, err := udp.SyscallConn()
	if err != nil {
		return err
	}
	var set error
	err = raw.Control(func(fd uintptr) { set = unix.SetsockoptInt(int(fd), level, option, 1) })
	return errors.Join(err, set)
}

// destination returns the address that a datagram was sent to, and the control message that sends the answer from it.
func destination(control []byte) (at netip.Addr, from []byte) {
	messages, _ := unix.ParseSocketControlMessage(control) // no message, no address
	for _, m := range messages {
		// struct in_pktinfo: the interface, the local address, the destination; four bytes each.
		if m.Header.Level == unix.IPPROTO_IP && m.Header.Type == unix.IP_PKTINFO && len(m.Data) >= 12 {
			at = netip.AddrFrom4([4]byte(m.Data[8:12]))
			from = unix.PktInfo4(&unix.Inet4Pktinfo{Spec_dst: at.As4()})
		}
		// struct in6_pktinfo: the destination, the interface.
		if m.Header.Level == unix.IPPROTO_IPV6 && m.Header.Type == unix.IPV6_PKTINFO && len(m.Data) >= 16 {
			at = netip.AddrFrom16([16]byte(m.Data[:16]))
			from = unix.PktInfo6(&unix.Inet6Pktinfo{Addr: at.As16()})
		}
	}
	return at, from
}

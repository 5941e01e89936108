// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/binary"
	"math/bits"
	"net/netip"

	"github.com/moby/ipvs"
	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/service"
)

// Flags of a Service. Schedulers give a meaning to the last two.
const (
	// Persistent keeps a client at its real server for the timeout.
	Persistent = 0x1
	// SchedulerFlag1 is "sh-fallback" and "mh-fallback": if the chosen real server has
	// weight 0, the scheduler chooses another one.
	SchedulerFlag1 = 0x8
	// SchedulerFlag2 is "sh-port" and "mh-port": the hash includes the client's port.
	SchedulerFlag2 = 0x10

	// hashed is an internal flag of the kernel, which every virtual server has.
	hashed = 0x2
)

// Service is a virtual server without its real servers. Equal values behave the same.
type Service struct {
	// Frontend has an address. It identifies the virtual server.
	service.Frontend
	// Scheduler is the kernel's name of a scheduler, such as "rr", of at most 15 bytes.
	Scheduler string
	Flags     uint32
	// Timeout of persistence in seconds, 0 without persistence.
	Timeout uint32
	// FreeBits is the number of low bits in which the addresses of clients that share their
	// persistence may differ.
	FreeBits uint8
}

// Real is a real server as rendered.
type Real struct {
	Addr netip.AddrPort
	// Weight is its share. With 0 it gets no new connections.
	Weight uint32
}

// Destination is a real server as read from the kernel.
type Destination struct {
	Real
	// Forwarding is Masquerading, or another IP_VS_CONN_F_… that only other programs use.
	Forwarding uint32
	// ActiveConns are established. InactiveConns are all others that the kernel still
	// remembers.
	ActiveConns, InactiveConns uint32
}

// Masquerading forwards by address translation, ports included.
const Masquerading = ipvs.ConnFwdMasq

// Server is a virtual server with its real servers.
type Server struct {
	Service
	Destinations []Destination
}

// identify returns the identifying fields of a virtual server in the library's type.
func identify(f service.Frontend) *ipvs.Service {
	return &ipvs.Service{
		AddressFamily: familyOf(f.Addr), Protocol: uint16(f.Protocol.Number()),
		Address: f.Addr.AsSlice(), Port: f.Port,
	}
}

// netmask returns the part of client addresses that persistence uses, in host byte order: for IPv4
// a mask as in the kernel's memory, for IPv6 the length of a prefix.
func netmask(s Service) uint32 {
	if s.Addr.Is4() {
		return hostOrder(^uint32(0) << min(s.FreeBits, 32))
	}
	return uint32(128 - min(s.FreeBits, 128))
}

// freeBits is the reverse of netmask. An IPv4 mask with gaps, which only other programs use,
// counts up to its first gap.
func freeBits(addr netip.Addr, mask uint32) uint8 {
	if addr.Is4() {
		return uint8(32 - bits.LeadingZeros32(^hostOrder(mask)))
	}
	return uint8(128 - min(mask, 128))
}

// hostOrder converts between network and host byte order.
func hostOrder(n uint32) uint32 {
	if binary.NativeEndian.Uint16([]byte{1, 0}) == 1 {
		return bits.ReverseBytes32(n)
	}
	return n
}

// serviceOf converts a virtual server from the library's type. It returns false for one without a
// frontend, such as one for packets with a mark.
func serviceOf(l *ipvs.Service) (Service, bool) {
	addr, ok := netip.AddrFromSlice(l.Address)
	protocol, known := ProtocolOf(l.Protocol)
	return Service{
		Frontend:  service.Frontend{Addr: addr, Port: l.Port, Protocol: protocol},
		Scheduler: l.SchedName, Flags: l.Flags &^ hashed, Timeout: l.Timeout,
		FreeBits: freeBits(addr, l.Netmask),
	}, ok && known
}

// destinationOf returns a real server that the library has read.
func destinationOf(l *ipvs.Destination) (Destination, bool) {
	addr, ok := netip.AddrFromSlice(l.Address)
	return Destination{
		Real:        Real{Addr: netip.AddrPortFrom(addr, l.Port), Weight: uint32(l.Weight)},
		Forwarding:  l.ConnectionFlags & ipvs.ConnectionFlagFwdMask,
		ActiveConns: uint32(l.ActiveConnections), InactiveConns: uint32(l.InactiveConnections),
	}, ok
}

// ProtocolOf is the reverse of service.Protocol.Number.
func ProtocolOf(number uint16) (service.Protocol, bool) {
	for _, p := range []service.Protocol{service.TCP, service.UDP, service.SCTP} {
		if uint16(p.Number()) == number {
			return p, true
		}
	}
	return 0, false
}

// familyOf returns AF_INET or AF_INET6, and AF_UNSPEC, which the kernel rejects, for an
// address that is not valid.
func familyOf(addr netip.Addr) uint16 {
	switch {
	case addr.Is4():
		return unix.AF_INET
	case addr.Is6():
		return unix.AF_INET6
	default:
		return unix.AF_UNSPEC
	}
}

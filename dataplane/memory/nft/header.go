package nft

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"
)

// header is what an IP header of a family has where.
type header struct {
	protocol, saddr, daddr, addrBytes, size int
}

var headers = map[uint8]*header{
	unix.NFPROTO_IPV4: {protocol: 9, saddr: 12, daddr: 16, addrBytes: 4, size: 20},
	unix.NFPROTO_IPV6: {protocol: 6, saddr: 8, daddr: 24, addrBytes: 16, size: 40},
}

// knows tells whether a part of the header is what a packet here has: its
// addresses, or the protocol.
func (h *header) knows(offset, size int) bool {
	return offset >= h.saddr && offset+size <= h.size || offset == h.protocol && size == 1
}

// bytes gives the header with the parts that are known.
func (h *header) bytes(s *state) []byte {
	b := make([]byte, h.size)
	b[h.protocol] = s.protocol
	copy(b[h.saddr:], s.src.Addr().AsSlice())
	copy(b[h.daddr:], s.dst.Addr().AsSlice())
	return b
}

// portBytes is the size of what TCP, UDP and SCTP have in common: the ports.
const portBytes = 4

// ports gives the start of the transport header.
func ports(s *state) []byte {
	b := binary.BigEndian.AppendUint16(nil, s.src.Port())
	return binary.BigEndian.AppendUint16(b, s.dst.Port())
}

// addr reads an address from a register.
func (h *header) addr(r *registers, at int) netip.Addr {
	a, _ := netip.AddrFromSlice(r.load(at, h.addrBytes))
	return a
}

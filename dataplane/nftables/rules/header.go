// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/service"
)

// Header has the differences between the rules of the two families.
type Header struct {
	Family service.Family
	// Name is nft's name of the family and of its packet header.
	Name string
	// Protocol is NFPROTO_IPV4 or NFPROTO_IPV6.
	Protocol uint8
	// AddrBytes is the size of an address. Saddr and Daddr are offsets in the header.
	AddrBytes, Saddr, Daddr int
	// PortUnreachable is the ICMP code for it.
	PortUnreachable byte
	// OriginalDaddr is NFT_CT_DST_IP or NFT_CT_DST_IP6 (Linux 4.17).
	OriginalDaddr uint32
}

// Headers has the Header of each family.
var Headers = service.PerFamily[Header]{
	service.IPv4: {
		Family: service.IPv4, Name: "ip", Protocol: unix.NFPROTO_IPV4, AddrBytes: 4, Saddr: 12, Daddr: 16, PortUnreachable: 3, OriginalDaddr: 20,
	},
	service.IPv6: {
		Family: service.IPv6, Name: "ip6", Protocol: unix.NFPROTO_IPV6, AddrBytes: 16, Saddr: 8, Daddr: 24, PortUnreachable: 4, OriginalDaddr: 22,
	},
}

// WordBytes is the size of a word of the registers.
const WordBytes = 4

// registerBytes is the size of all registers.
const registerBytes = 64

// Register returns the number of a word as the kernel reports it: whole registers of 16 bytes are 1 to 4, and
// the words between them have other numbers.
func Register(word int) uint32 {
	if word%4 == 0 {
		return uint32(unix.NFT_REG_1 + word/4)
	}
	return uint32(unix.NFT_REG32_00 + word)
}

// offsetOf returns where a register begins, and whether a value of some bytes fits there.
func offsetOf(register uint32, size int) (at int, ok bool) {
	switch {
	case register >= unix.NFT_REG_1 && register <= unix.NFT_REG_4:
		at = int(register-unix.NFT_REG_1) * 4 * WordBytes
	case register >= unix.NFT_REG32_00 && register <= unix.NFT_REG32_15:
		at = int(register-unix.NFT_REG32_00) * WordBytes
	default:
		return 0, false
	}
	return at, size >= 0 && at+size <= registerBytes
}

// Bits of the status of a connection (linux/netfilter/nf_conntrack_common.h).
const (
	StatusConfirmed = 1 << 3 // IPS_CONFIRMED
	StatusDNAT      = 1 << 5 // IPS_DST_NAT
)

// StateEstablished is the state bit of a connection after its first reply
// (NF_CT_STATE_BIT(IP_CT_ESTABLISHED)).
const StateEstablished = 1 << 1

// DynsetDelete is NFT_DYNSET_OP_DELETE (Linux 5.4).
const DynsetDelete = 2

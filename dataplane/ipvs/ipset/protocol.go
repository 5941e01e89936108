package ipset

import (
	"strconv"

	"golang.org/x/sys/unix"
)

// Protocol is that of a port, as in the header of an IP packet.
type Protocol uint8

// The protocols with ports that a set can keep.
const (
	TCP     Protocol = unix.IPPROTO_TCP
	UDP     Protocol = unix.IPPROTO_UDP
	SCTP    Protocol = unix.IPPROTO_SCTP
	UDPLite Protocol = unix.IPPROTO_UDPLITE
)

// String gives the word that ipset(8) uses, and the number of a protocol without
// ports, which none of our sets has.
func (p Protocol) String() string {
	switch p {
	case TCP:
		return "tcp"
	case UDP:
		return "udp"
	case SCTP:
		return "sctp"
	case UDPLite:
		return "udplite"
	}
	return strconv.Itoa(int(p))
}

// parseProtocol reads what String gives. 0 is no protocol.
func parseProtocol(text string) (Protocol, bool) {
	for _, p := range []Protocol{TCP, UDP, SCTP, UDPLite} {
		if text == p.String() {
			return p, true
		}
	}
	n, ok := parseNumber(text, 8)
	return Protocol(n), ok && n > 0
}

// parseNumber reads a decimal number in the only way in which it is printed.
func parseNumber(text string, bits int) (uint64, bool) {
	n, err := strconv.ParseUint(text, 10, bits)
	return n, err == nil && strconv.FormatUint(n, 10) == text
}

// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"cmp"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	library "github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/internal/netlink"
)

// Protocol is a protocol number, as in the header of an IP packet.
type Protocol uint8

// The protocols with ports that the entries of a set can have.
const (
	TCP     Protocol = unix.IPPROTO_TCP
	UDP     Protocol = unix.IPPROTO_UDP
	SCTP    Protocol = unix.IPPROTO_SCTP
	UDPLite Protocol = unix.IPPROTO_UDPLITE
)

// String returns the name that ipset(8) uses, or the number of a protocol without ports,
// which Sluice's sets do not contain.
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

// parseProtocol is the reverse of String. 0 is not a protocol.
func parseProtocol(text string) (Protocol, bool) {
	for _, p := range []Protocol{TCP, UDP, SCTP, UDPLite} {
		if text == p.String() {
			return p, true
		}
	}
	n, ok := parseNumber(text, 8)
	return Protocol(n), ok && n > 0
}

// parseNumber reads a decimal number in the only form in which it is printed.
func parseNumber(text string, bits int) (uint64, bool) {
	n, err := strconv.ParseUint(text, 10, bits)
	return n, err == nil && strconv.FormatUint(n, 10) == text
}

// Entry is one entry of a set of a known type. The type decides which fields are used; the others
// are zero. Equal entries have equal values.
type Entry struct {
	// Addr is the first part of every hash type, without a zone.
	Addr netip.Addr
	// Protocol and Port are the second part. A bitmap has only the port.
	Protocol Protocol
	Port     uint16
	// Second is the third part: a network without host bits, or an address as a network of one
	// address.
	Second netip.Prefix
}

// ParseEntry reads an entry of a set of a type from the text that String returns. It also
// accepts addresses in another spelling and networks with host bits, but neither host names nor
// ranges.
func ParseEntry(t SetType, text string) (Entry, error) {
	e, ok := Entry{}, false
	parts := strings.Split(text, ",")
	switch {
	case t == BitmapPort && len(parts) == 1:
		ok = e.parsePort(text)
	case t == HashIP && len(parts) == 1:
		ok = e.parseAddr(text)
	case t == HashIPPort && len(parts) == 2:
		ok = e.parseAddr(parts[0]) && e.parseProtocolPort(parts[1])
	case (t == HashIPPortIP || t == HashIPPortNet) && len(parts) == 3:
		ok = e.parseAddr(parts[0]) && e.parseProtocolPort(parts[1]) && e.parseSecond(t, parts[2])
	}
	if !ok {
		return Entry{}, fmt.Errorf("ipset: %q is not an entry of a set of type %s", text, t)
	}
	return e, nil
}

func (e *Entry) parseAddr(text string) bool {
	a, err := netip.ParseAddr(text)
	e.Addr = a
	return err == nil && a.Zone() == ""
}

func (e *Entry) parsePort(text string) bool {
	n, ok := parseNumber(text, 16)
	e.Port = uint16(n)
	return ok
}

func (e *Entry) parseProtocolPort(text string) bool {
	protocol, port, found := strings.Cut(text, ":")
	p, ok := parseProtocol(protocol)
	e.Protocol = p
	return found && ok && e.parsePort(port)
}

// parseSecond reads the third part, which has the family of the first.
func (e *Entry) parseSecond(t SetType, text string) bool {
	if strings.Contains(text, "/") {
		p, err := netip.ParsePrefix(text)
		e.Second = p.Masked()
		// A hash of networks cannot contain a network of length 0.
		return err == nil && t == HashIPPortNet && p.Bits() > 0 && p.Addr().BitLen() == e.Addr.BitLen()
	}
	a, err := netip.ParseAddr(text)
	e.Second = netip.PrefixFrom(a, a.BitLen())
	return err == nil && a.Zone() == "" && a.BitLen() == e.Addr.BitLen()
}

// String returns the entry as ipset(8) prints it: a network of one address without its
// length, and no brackets around IPv6 addresses.
func (e Entry) String() string {
	if !e.Addr.IsValid() {
		return strconv.Itoa(int(e.Port))
	}
	b := e.Addr.AppendTo(make([]byte, 0, 64))
	if e.Protocol != 0 {
		b = append(b, ',')
		b = append(b, e.Protocol.String()...)
		b = append(b, ':')
		b = strconv.AppendUint(b, uint64(e.Port), 10)
	}
	if e.Second.IsValid() {
		b = append(b, ',')
		b = e.Second.Addr().AppendTo(b)
		if !e.Second.IsSingleIP() {
			b = append(b, '/')
			b = strconv.AppendInt(b, int64(e.Second.Bits()), 10)
		}
	}
	return string(b)
}

// The kernel requires the first flag for a number or an address, and the second for a list of
// attributes.
const (
	network = unix.NLA_F_NET_BYTEORDER
	nested  = unix.NLA_F_NESTED
)

// append adds the attributes of the entry.
func (e Entry) append(b []byte) []byte {
	if !e.Addr.IsValid() {
		return netlink.AppendUint16(b, nl.IPSET_ATTR_PORT|network, e.Port)
	}
	b = appendAddress(b, nl.IPSET_ATTR_IP, e.Addr)
	if e.Protocol != 0 {
		b = netlink.AppendUint16(b, nl.IPSET_ATTR_PORT|network, e.Port)
		b = netlink.AppendUint8(b, nl.IPSET_ATTR_PROTO, uint8(e.Protocol))
	}
	if e.Second.IsValid() {
		b = appendAddress(b, nl.IPSET_ATTR_IP2, e.Second.Addr())
		if !e.Second.IsSingleIP() {
			b = netlink.AppendUint8(b, nl.IPSET_ATTR_CIDR2, uint8(e.Second.Bits()))
		}
	}
	return b
}

func appendAddress(b []byte, kind uint16, a netip.Addr) []byte {
	inner := uint16(nl.IPSET_ATTR_IPADDR_IPV6)
	if a.Is4() {
		inner = nl.IPSET_ATTR_IPADDR_IPV4
	}
	b, mark := netlink.Nest(b, kind|nested)
	return netlink.End(netlink.AppendBytes(b, inner|network, a.AsSlice()), mark)
}

// entryOf converts an entry of a set of a type from the library's type. It returns false if the
// entry does not have the parts of the type. It ignores counters, comments and other extensions
// that sets of other programs may have.
func entryOf(t SetType, l *library.IPSetEntry) (Entry, bool) {
	e := Entry{}
	e.Addr, _ = netip.AddrFromSlice(l.IP)
	if l.Port != nil {
		e.Port = *l.Port
	}
	if l.Protocol != nil {
		e.Protocol = Protocol(*l.Protocol)
	}
	if second, ok := netip.AddrFromSlice(l.IP2); ok {
		e.Second = netip.PrefixFrom(second, cmp.Or(int(l.CIDR2), second.BitLen())).Masked()
	}
	return e, e.is(t)
}

// is reports whether the entry has exactly the parts that a type has.
func (e Entry) is(t SetType) bool {
	has := [3]bool{e.Addr.IsValid(), e.Protocol != 0, e.Second.IsValid()}
	if e.Second.IsValid() && (e.Second.Bits() == 0 || e.Second.Addr().BitLen() != e.Addr.BitLen()) {
		return false // no set can contain it
	}
	switch t {
	case BitmapPort:
		return has == [3]bool{}
	case HashIP:
		return has == [3]bool{true, false, false} && e.Port == 0
	case HashIPPort:
		return has == [3]bool{true, true, false}
	case HashIPPortIP:
		return has == [3]bool{true, true, true} && e.Second.IsSingleIP()
	case HashIPPortNet:
		return has == [3]bool{true, true, true}
	}
	return false
}

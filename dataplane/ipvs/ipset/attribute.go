package ipset

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane/nftables/wire"
)

// Attributes of a message (enum of IPSET_ATTR_… at command level).
const (
	attrProtocol    = 1
	attrSetName     = 2
	attrTypeName    = 3
	attrSetName2    = attrTypeName // of rename and swap
	attrRevision    = 4
	attrFamily      = 5
	attrFlags       = 6
	attrData        = 7
	attrADT         = 8
	attrLine        = 9
	attrProtocolMin = 10
	attrRevisionMin = attrProtocolMin // of the answer about a type
)

// Attributes inside of attrData: of an entry, and of a set's header.
const (
	dataAddress     = 1
	dataPort        = 4
	dataPortTo      = 5
	dataProtocol    = 7
	dataHashSize    = 18
	dataMaxElem     = 19
	dataElements    = 24
	dataReferences  = 25
	dataMemory      = 26
	dataAddress2    = 20 // means another thing in a header
	dataPrefixBits2 = 21
)

// Attributes inside of an address.
const (
	addressIPv4 = 1
	addressIPv6 = 2
)

// The kernel refuses a number or an address without the first flag, and a list of
// attributes without the second.
const (
	network = unix.NLA_F_NET_BYTEORDER
	nested  = unix.NLA_F_NESTED
)

func appendByte(b []byte, kind uint16, n uint8) []byte {
	return wire.AppendBytes(b, kind, []byte{n})
}

func appendPort(b []byte, kind, port uint16) []byte {
	return wire.AppendBytes(b, kind|network, binary.BigEndian.AppendUint16(nil, port))
}

func appendAddress(b []byte, kind uint16, a netip.Addr) []byte {
	inner := uint16(addressIPv6)
	if a.Is4() {
		inner = addressIPv4
	}
	b, mark := wire.Nest(b, kind|nested)
	return wire.End(wire.AppendBytes(b, inner|network, a.AsSlice()), mark)
}

// byteOf gives a number of one byte; 0 when the attribute is of another size.
func byteOf(a wire.Attr) uint8 {
	if len(a.Data) != 1 {
		return 0
	}
	return a.Data[0]
}

// portOf gives a number of two bytes; 0 when the attribute is of another size.
func portOf(a wire.Attr) uint16 {
	if len(a.Data) != 2 {
		return 0
	}
	return binary.BigEndian.Uint16(a.Data)
}

// addressOf gives the address in an attribute, the zero one when there is none.
func addressOf(a wire.Attr) netip.Addr {
	for inner := range wire.Attrs(a.Data) {
		if inner.Type == addressIPv4 && len(inner.Data) == 4 || inner.Type == addressIPv6 && len(inner.Data) == 16 {
			found, _ := netip.AddrFromSlice(inner.Data)
			return found
		}
	}
	return netip.Addr{}
}

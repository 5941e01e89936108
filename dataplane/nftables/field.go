package nftables

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"
)

// field is a part of a set's key, or of a map's data.
type field uint8

const (
	fieldDaddr field = iota
	fieldSaddr
	fieldProtocol // of the transport layer, 1 byte
	fieldPort     // destination port, network byte order
	fieldSlot     // a random number, host byte order
)

// registerBytes is the unit of the kernel's registers; fields are padded to it.
const registerBytes = 4

// bytes is the field's size in a key.
func (f field) bytes(d *dialect) int {
	if f == fieldDaddr || f == fieldSaddr {
		return d.addrBytes
	}
	return registerBytes
}

// nftType is nft's number of the field's type.
func (f field) nftType(d *dialect) uint32 {
	return [...]uint32{fieldDaddr: d.addrType, fieldSaddr: d.addrType, fieldProtocol: 12, fieldPort: 13, fieldSlot: 4}[f]
}

// keyBytes is the size of a key of several fields.
func keyBytes(d *dialect, fields []field) int {
	size := 0
	for _, f := range fields {
		size += f.bytes(d)
	}
	return size
}

// nftType packs the types of several fields as nft does, 6 bits each.
func nftType(d *dialect, fields []field) uint32 {
	packed := uint32(0)
	for _, f := range fields {
		packed = packed<<6 | f.nftType(d)
	}
	return packed
}

// The parts of keys and data, padded as the kernel's registers hold them.

func appendAddr(b []byte, a netip.Addr) []byte {
	if a.Is4() {
		four := a.As4()
		return append(b, four[:]...)
	}
	sixteen := a.As16()
	return append(b, sixteen[:]...)
}

func appendProtocol(b []byte, number uint8) []byte { return append(b, number, 0, 0, 0) }

func appendPort(b []byte, port uint16) []byte {
	return append(binary.BigEndian.AppendUint16(b, port), 0, 0)
}

func appendSlot(b []byte, slot int) []byte {
	return binary.NativeEndian.AppendUint32(b, uint32(slot))
}

// typeofExpr is what nft keeps in a set's user data about one field, so that it
// can print "typeof ip daddr . meta l4proto". (nftables 1.0.6; the kernel does
// not look at it.) The numbers are those of nft's expression types, headers and
// header fields.
func (f field) typeofExpr(d *dialect) []byte {
	const (
		payload, meta, numgen = 7, 9, 23
		transportHeader       = 11
		transportPort         = 2
		random, anyModulus    = 1, 16
	)
	switch f {
	case fieldProtocol:
		return typeofNode(meta, udataUint32(nil, 0, unix.NFT_META_L4PROTO))
	case fieldPort:
		return typeofNode(payload, udataUint32(udataUint32(nil, 0, transportHeader), 1, transportPort))
	case fieldSlot:
		return typeofNode(numgen, udataUint32(udataUint32(udataUint32(nil, 0, random), 1, anyModulus), 2, 0))
	default:
		return typeofNode(payload, udataUint32(udataUint32(nil, 0, d.header), 1, d.daddrField))
	}
}

// typeofFields is the same for a concatenation; a single field stands alone.
func typeofFields(d *dialect, fields []field) []byte {
	if len(fields) == 1 {
		return fields[0].typeofExpr(d)
	}
	const concatenation = 13
	var parts []byte
	for i, f := range fields {
		parts = udata(parts, byte(i), f.typeofExpr(d))
	}
	return typeofNode(concatenation, parts)
}

func typeofNode(kind uint32, data []byte) []byte {
	return udata(udataUint32(nil, 0, kind), 1, data)
}

// udata adds an entry of user data: type, length, and the data without padding.
func udata(b []byte, kind byte, data []byte) []byte {
	return append(append(b, kind, byte(len(data))), data...)
}

func udataUint32(b []byte, kind byte, n uint32) []byte {
	return binary.NativeEndian.AppendUint32(append(b, kind, 4), n)
}

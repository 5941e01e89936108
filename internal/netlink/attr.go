// SPDX-License-Identifier: Apache-2.0

package netlink

import (
	"encoding/binary"
	"iter"
	"net/netip"
)

// The layout of an attribute: length and type in host byte order, then the data,
// padded to 4 bytes. The length counts the header and not the padding.
const (
	attrHeader = 4
	alignment  = 4
	// typeMask removes the flags that a sender may set in a type.
	typeMask = 0x3fff
)

// Attr is one attribute. Data is part of the message that it was found in.
type Attr struct {
	Type uint16
	Data []byte
}

// Uint8 returns a number of one byte, or 0 if the attribute has another size.
func (a Attr) Uint8() uint8 {
	if len(a.Data) != 1 {
		return 0
	}
	return a.Data[0]
}

// Uint16 returns a number in network byte order, or 0 if the attribute has another
// size.
func (a Attr) Uint16() uint16 {
	if len(a.Data) != 2 {
		return 0
	}
	return binary.BigEndian.Uint16(a.Data)
}

// Uint32 returns a number in network byte order, as netfilter has them, or 0 if the
// attribute has another size.
func (a Attr) Uint32() uint32 {
	if len(a.Data) != 4 {
		return 0
	}
	return binary.BigEndian.Uint32(a.Data)
}

// Uint64 returns a number in network byte order, or 0 if the attribute has another
// size.
func (a Attr) Uint64() uint64 {
	if len(a.Data) != 8 {
		return 0
	}
	return binary.BigEndian.Uint64(a.Data)
}

// HostUint32 returns the number in host byte order at the beginning of the
// attribute, or 0 if it is too short. Flags, for example, are followed by a mask.
func (a Attr) HostUint32() uint32 {
	if len(a.Data) < 4 {
		return 0
	}
	return binary.NativeEndian.Uint32(a.Data)
}

// Text returns a text without the zero at its end.
func (a Attr) Text() string {
	data := a.Data
	if len(data) > 0 && data[len(data)-1] == 0 {
		data = data[:len(data)-1]
	}
	return string(data)
}

// Addr returns an address of 4 or 16 bytes, or the zero one if the attribute has
// another size.
func (a Attr) Addr() netip.Addr {
	addr, _ := netip.AddrFromSlice(a.Data)
	return addr
}

// Attrs iterates over the attributes in a buffer. It stops at a malformed one.
func Attrs(b []byte) iter.Seq[Attr] {
	return func(yield func(Attr) bool) {
		for len(b) >= attrHeader {
			size := int(binary.NativeEndian.Uint16(b))
			if size < attrHeader || size > len(b) {
				return
			}
			attr := Attr{Type: binary.NativeEndian.Uint16(b[2:]) & typeMask, Data: b[attrHeader:size]}
			if !yield(attr) {
				return
			}
			b = b[min(aligned(size), len(b)):]
		}
	}
}

// Find returns the first attribute of a type. Its Data is nil if there is none.
func Find(b []byte, kind uint16) Attr {
	for attr := range Attrs(b) {
		if attr.Type == kind {
			return attr
		}
	}
	return Attr{Type: kind}
}

// AppendBytes adds an attribute. Data has at most 64 KiB less the header.
func AppendBytes(b []byte, kind uint16, data []byte) []byte {
	b = appendAttrHeader(b, kind, len(data))
	return pad(append(b, data...))
}

// AppendString adds an attribute whose bytes are in a string.
func AppendString(b []byte, kind uint16, data string) []byte {
	b = appendAttrHeader(b, kind, len(data))
	return pad(append(b, data...))
}

// AppendText adds a text with a zero at its end, as the kernel's names have it.
func AppendText(b []byte, kind uint16, text string) []byte {
	b = appendAttrHeader(b, kind, len(text)+1)
	return pad(append(append(b, text...), 0))
}

// AppendUint8 adds a number of one byte.
func AppendUint8(b []byte, kind uint16, n uint8) []byte {
	return pad(append(appendAttrHeader(b, kind, 1), n))
}

// AppendUint16 adds a number in network byte order.
func AppendUint16(b []byte, kind, n uint16) []byte {
	return pad(binary.BigEndian.AppendUint16(appendAttrHeader(b, kind, 2), n))
}

// AppendUint32 adds a number in network byte order.
func AppendUint32(b []byte, kind uint16, n uint32) []byte {
	return binary.BigEndian.AppendUint32(appendAttrHeader(b, kind, 4), n)
}

// AppendUint64 adds a number in network byte order.
func AppendUint64(b []byte, kind uint16, n uint64) []byte {
	return binary.BigEndian.AppendUint64(appendAttrHeader(b, kind, 8), n)
}

// AppendHostUint16 adds a number in host byte order.
func AppendHostUint16(b []byte, kind, n uint16) []byte {
	return pad(binary.NativeEndian.AppendUint16(appendAttrHeader(b, kind, 2), n))
}

// AppendHostUint32 adds a number in host byte order.
func AppendHostUint32(b []byte, kind uint16, n uint32) []byte {
	return binary.NativeEndian.AppendUint32(appendAttrHeader(b, kind, 4), n)
}

// Nest opens an attribute that contains others. Pass the mark to End.
func Nest(b []byte, kind uint16) (opened []byte, mark int) {
	return appendAttrHeader(b, kind, 0), len(b)
}

// End closes what Nest opened.
func End(b []byte, mark int) []byte {
	binary.NativeEndian.PutUint16(b[mark:], uint16(len(b)-mark))
	return b
}

func appendAttrHeader(b []byte, kind uint16, dataBytes int) []byte {
	b = binary.NativeEndian.AppendUint16(b, uint16(attrHeader+dataBytes))
	return binary.NativeEndian.AppendUint16(b, kind)
}

func aligned(size int) int { return (size + alignment - 1) &^ (alignment - 1) }

// pad aligns the end of a buffer whose attributes begin at a multiple of 4 bytes.
func pad(b []byte) []byte {
	for len(b)%alignment != 0 {
		b = append(b, 0)
	}
	return b
}

package wire

import (
	"encoding/binary"
	"iter"
)

// The layout of an attribute: length and type in host byte order, then the
// data, padded to 4 bytes. The length counts the header and not the padding.
const (
	attrHeader = 4
	alignment  = 4
	// typeMask takes away the flags that a sender may set in a type.
	typeMask = 0x3fff
)

// Attr is one attribute. Data is part of the message it was found in.
type Attr struct {
	Type uint16
	Data []byte
}

// Uint32 gives the number that the attribute carries in network byte order, as
// nearly all of nf_tables' do; 0 when it is of another size.
func (a Attr) Uint32() uint32 {
	if len(a.Data) != 4 {
		return 0
	}
	return binary.BigEndian.Uint32(a.Data)
}

// Uint64 gives the number that the attribute carries in network byte order; 0 when it
// is of another size.
func (a Attr) Uint64() uint64 {
	if len(a.Data) != 8 {
		return 0
	}
	return binary.BigEndian.Uint64(a.Data)
}

// Text gives the text that the attribute carries, without the zero at its end.
func (a Attr) Text() string {
	data := a.Data
	if len(data) > 0 && data[len(data)-1] == 0 {
		data = data[:len(data)-1]
	}
	return string(data)
}

// Attrs walks over the attributes in a buffer. What is malformed ends the walk.
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

// Find gives the first attribute of a type; its Data is nil when there is none.
func Find(b []byte, kind uint16) Attr {
	for attr := range Attrs(b) {
		if attr.Type == kind {
			return attr
		}
	}
	return Attr{Type: kind}
}

// AppendBytes adds an attribute. Data is at most 64 KiB less the header.
func AppendBytes(b []byte, kind uint16, data []byte) []byte {
	b = appendHeader(b, kind, len(data))
	return pad(append(b, data...))
}

// AppendString adds an attribute of bytes that are at hand as a string.
func AppendString(b []byte, kind uint16, data string) []byte {
	b = appendHeader(b, kind, len(data))
	return pad(append(b, data...))
}

// AppendText adds a text, with the zero at its end that the kernel's names have.
func AppendText(b []byte, kind uint16, text string) []byte {
	b = appendHeader(b, kind, len(text)+1)
	return pad(append(append(b, text...), 0))
}

// AppendUint32 adds a number in network byte order.
func AppendUint32(b []byte, kind uint16, n uint32) []byte {
	return binary.BigEndian.AppendUint32(appendHeader(b, kind, 4), n)
}

// AppendUint64 adds a number in network byte order.
func AppendUint64(b []byte, kind uint16, n uint64) []byte {
	return binary.BigEndian.AppendUint64(appendHeader(b, kind, 8), n)
}

// Nest opens an attribute that holds others; hand the mark to End.
func Nest(b []byte, kind uint16) (opened []byte, mark int) {
	return appendHeader(b, kind, 0), len(b)
}

// End closes what Nest opened.
func End(b []byte, mark int) []byte {
	binary.NativeEndian.PutUint16(b[mark:], uint16(len(b)-mark))
	return b
}

func appendHeader(b []byte, kind uint16, dataBytes int) []byte {
	b = binary.NativeEndian.AppendUint16(b, uint16(attrHeader+dataBytes))
	return binary.NativeEndian.AppendUint16(b, kind)
}

func aligned(size int) int { return (size + alignment - 1) &^ (alignment - 1) }

func pad(b []byte) []byte {
	for len(b)%alignment != 0 {
		b = append(b, 0)
	}
	return b
}

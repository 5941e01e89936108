package wire

import (
	"encoding/binary"
	"iter"

	"golang.org/x/sys/unix"
)

// The layout of a message: the netlink header, then the netfilter header
// (family, version, resource), then attributes.
const (
	headerBytes = unix.SizeofNlMsghdr
	genericSize = 4
)

// Message is one message of nf_tables.
type Message struct {
	// Kind is the message type within nf_tables, NFT_MSG_….
	Kind uint16
	// Family is NFPROTO_IPV4, NFPROTO_IPV6 or another one.
	Family uint8
	// Port is whose request the message answers, or whose change it announces.
	Port uint32
	// Attrs are the attributes; see Attrs.
	Attrs []byte
}

// header is a netlink message with its payload still unread.
type header struct {
	kind, flags uint16
	seq, port   uint32
	payload     []byte
}

// headers walks over the messages of one datagram.
func headers(b []byte) iter.Seq[header] {
	return func(yield func(header) bool) {
		for len(b) >= headerBytes {
			size := int(binary.NativeEndian.Uint32(b))
			if size < headerBytes || size > len(b) {
				return
			}
			h := header{
				kind:    binary.NativeEndian.Uint16(b[4:]),
				flags:   binary.NativeEndian.Uint16(b[6:]),
				seq:     binary.NativeEndian.Uint32(b[8:]),
				port:    binary.NativeEndian.Uint32(b[12:]),
				payload: b[headerBytes:size],
			}
			if !yield(h) {
				return
			}
			b = b[min(aligned(size), len(b)):]
		}
	}
}

// message interprets the payload; false when the message is not nf_tables'.
func (h header) message() (Message, bool) {
	if h.kind>>8 != unix.NFNL_SUBSYS_NFTABLES || len(h.payload) < genericSize {
		return Message{}, false
	}
	return Message{
		Kind: h.kind & 0xff, Family: h.payload[0], Port: h.port, Attrs: h.payload[genericSize:],
	}, true
}

// open starts a message in a buffer; shut closes it. Flags are NLM_F_….
func open(b []byte, kind, flags uint16, seq uint32, family uint8, resource uint16) (opened []byte, mark int) {
	mark = len(b)
	b = append(b, 0, 0, 0, 0)
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = binary.NativeEndian.AppendUint16(b, flags|unix.NLM_F_REQUEST)
	b = binary.NativeEndian.AppendUint32(b, seq)
	b = append(b, 0, 0, 0, 0) // the kernel fills in who asks
	b = append(b, family, unix.NFNETLINK_V0)
	return binary.BigEndian.AppendUint16(b, resource), mark
}

func shut(b []byte, mark int) []byte {
	binary.NativeEndian.PutUint32(b[mark:], uint32(len(b)-mark))
	return b
}

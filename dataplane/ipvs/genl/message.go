package genl

import (
	"encoding/binary"
	"iter"

	"golang.org/x/sys/unix"
)

// The layout of a message: the netlink header, then that of generic netlink
// (command, version, two bytes of nothing), then attributes.
const (
	headerBytes  = unix.SizeofNlMsghdr
	genericBytes = 4
	version      = 1
	alignment    = 4
)

// Commands (IPVS_CMD_…).
const (
	newService     = 1
	setService     = 2
	deleteService  = 3
	getService     = 4
	newDestination = 5
	setDestination = 6
	delDestination = 7
	getDestination = 8
	setConfig      = 12
	getConfig      = 13
	flush          = 17
)

// Attributes of the first level (IPVS_CMD_ATTR_…).
const (
	commandService       = 1
	commandDestination   = 2
	commandTimeoutTCP    = 4
	commandTimeoutTCPFin = 5
	commandTimeoutUDP    = 6
)

// open starts a message in a buffer; shut closes it. The kind is the number of a
// family, flags are NLM_F_….
func open(b []byte, kind, flags uint16, seq uint32, command uint8) (opened []byte, mark int) {
	mark = len(b)
	b = append(b, 0, 0, 0, 0)
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = binary.NativeEndian.AppendUint16(b, flags|unix.NLM_F_REQUEST)
	b = binary.NativeEndian.AppendUint32(b, seq)
	b = append(b, 0, 0, 0, 0) // the kernel fills in who asks
	return append(b, command, version, 0, 0), mark
}

func shut(b []byte, mark int) []byte {
	binary.NativeEndian.PutUint32(b[mark:], uint32(len(b)-mark))
	return b
}

// demand adds flags to a message that is finished.
func demand(message []byte, flags uint16) {
	at := message[6:]
	binary.NativeEndian.PutUint16(at, binary.NativeEndian.Uint16(at)|flags)
}

// header is a message that was received, with its payload still unread.
type header struct {
	kind, flags uint16
	seq         uint32
	payload     []byte
}

// headers walks over the messages of one datagram. What is malformed ends it.
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
				payload: b[headerBytes:size],
			}
			if !yield(h) {
				return
			}
			b = b[min(aligned(size), len(b)):]
		}
	}
}

// attributes are those of a message of generic netlink.
func (h header) attributes() []byte { return h.payload[min(genericBytes, len(h.payload)):] }

func aligned(size int) int { return (size + alignment - 1) &^ (alignment - 1) }

package conntrack

import (
	"encoding/binary"
	"iter"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/service"
)

// The layout of a message: the netlink header, then the netfilter header (family,
// version, resource), then attributes.
const (
	messageHeader    = unix.SizeofNlMsghdr
	genericHeader    = 4
	messageAlignment = 4
)

// openMessage starts a request in a buffer; shutMessage closes it.
func openMessage(b []byte, kind, flags uint16, sequence uint32, family service.Family) (opened []byte, mark int) {
	mark = len(b)
	b = append(b, 0, 0, 0, 0)
	b = binary.NativeEndian.AppendUint16(b, unix.NFNL_SUBSYS_CTNETLINK<<8|kind)
	b = binary.NativeEndian.AppendUint16(b, flags|unix.NLM_F_REQUEST)
	b = binary.NativeEndian.AppendUint32(b, sequence)
	b = append(b, 0, 0, 0, 0) // the kernel fills in who asks
	return append(b, layouts[family].protocol, unix.NFNETLINK_V0, 0, 0), mark
}

func shutMessage(b []byte, mark int) []byte {
	binary.NativeEndian.PutUint32(b[mark:], uint32(len(b)-mark))
	return b
}

// message is one message of the kernel's answer.
type message struct {
	kind, flags uint16
	sequence    uint32
	payload     []byte
}

// messages walks over those of one datagram. What is malformed ends the walk.
func messages(b []byte) iter.Seq[message] {
	return func(yield func(message) bool) {
		for len(b) >= messageHeader {
			size := int(binary.NativeEndian.Uint32(b))
			if size < messageHeader || size > len(b) {
				return
			}
			m := message{
				kind:     binary.NativeEndian.Uint16(b[4:]),
				flags:    binary.NativeEndian.Uint16(b[6:]),
				sequence: binary.NativeEndian.Uint32(b[8:]),
				payload:  b[messageHeader:size],
			}
			if !yield(m) {
				return
			}
			b = b[min((size+messageAlignment-1)&^(messageAlignment-1), len(b)):]
		}
	}
}

// failure is the error that NLMSG_ERROR and NLMSG_DONE carry; nil for none.
func (m message) failure() error {
	if len(m.payload) >= 4 {
		if number := -int32(binary.NativeEndian.Uint32(m.payload)); number > 0 {
			return unix.Errno(number)
		}
	}
	return nil
}

package wire

import (
	"encoding/binary"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// Refusal is the kernel's no to one message of a transaction.
type Refusal struct {
	Errno syscall.Errno
	// Kind is the message type that was refused, NFT_MSG_…; 0 for the
	// transaction as a whole.
	Kind uint16
	// Words are the kernel's own, if it gave some.
	Words string
	// About is what the refused part stands for; see Transaction.Note.
	About []int
}

// Error gives the kernel's reason.
func (r *Refusal) Error() string {
	text := fmt.Sprintf("%s: %v", kindName(r.Kind), r.Errno)
	if r.Words != "" {
		text += " (" + r.Words + ")"
	}
	return text
}

// Unwrap gives the error number.
func (r *Refusal) Unwrap() error { return r.Errno }

func kindName(kind uint16) string {
	names := map[uint16]string{
		unix.NFT_MSG_NEWTABLE: "add table", unix.NFT_MSG_DELTABLE: "delete table",
		unix.NFT_MSG_NEWCHAIN: "add chain", unix.NFT_MSG_DELCHAIN: "delete chain",
		unix.NFT_MSG_NEWRULE: "add rule", unix.NFT_MSG_DELRULE: "delete rules",
		unix.NFT_MSG_NEWSET: "add set", unix.NFT_MSG_DELSET: "delete set",
		unix.NFT_MSG_NEWSETELEM: "add element", unix.NFT_MSG_DELSETELEM: "delete element",
	}
	if name, ok := names[kind]; ok {
		return name
	}
	return "transaction"
}

// answer is what an NLMSG_ERROR message says.
type answer struct {
	seq   uint32
	errno syscall.Errno // 0 for yes
	words string
	// offset is that of the refused attribute in the message, 0 if not given.
	offset int
}

// Extended acknowledgements (linux/netlink.h).
const (
	extWords  = 1
	extOffset = 2
)

// parseAnswer reads an NLMSG_ERROR message, whose header is followed by the
// error number, the header of the request, and attributes.
func parseAnswer(h header) (answer, bool) {
	if len(h.payload) < 4+headerBytes {
		return answer{}, false
	}
	errno := -int32(binary.NativeEndian.Uint32(h.payload))
	a := answer{seq: h.seq, errno: syscall.Errno(errno)}
	if h.flags&unix.NLM_F_ACK_TLVS == 0 {
		return a, true
	}
	rest := h.payload[4+headerBytes:]
	if h.flags&unix.NLM_F_CAPPED == 0 {
		size := int(binary.NativeEndian.Uint32(h.payload[4:]))
		if size < headerBytes || size-headerBytes > len(rest) {
			return a, true
		}
		rest = rest[min(aligned(size-headerBytes), len(rest)):]
	}
	for attr := range Attrs(rest) {
		switch attr.Type {
		case extWords:
			a.words = attr.Text()
		case extOffset:
			if len(attr.Data) == 4 {
				a.offset = int(binary.NativeEndian.Uint32(attr.Data))
			}
		}
	}
	return a, true
}

package genl

import (
	"encoding/binary"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane/nftables/wire"
)

// answer is what the end of an exchange says (NLMSG_ERROR, NLMSG_DONE).
type answer struct {
	errno syscall.Errno // 0 for yes
	words string
}

// extWords is the kernel's own text in an extended acknowledgement
// (NLMSGERR_ATTR_MSG).
const extWords = 1

// parseAnswer reads the payload of an NLMSG_ERROR: the error number, the header of
// the request with or without the rest of it, and attributes.
func parseAnswer(h header) (answer, bool) {
	if len(h.payload) < 4+headerBytes {
		return answer{}, false
	}
	a := answer{errno: errnoAt(h.payload)}
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
	a.words = wire.Find(rest, extWords).Text()
	return a, true
}

// errnoAt reads an error number, which the kernel gives as a negative one.
func errnoAt(payload []byte) syscall.Errno {
	return syscall.Errno(max(-int32(uint32At(payload)), 0))
}

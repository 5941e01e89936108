package nft

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane/nftables/wire"
)

// headerBytes is the size of a message's netlink and netfilter headers together.
const headerBytes = unix.SizeofNlMsghdr + 4

// request is one message of a transaction.
type request struct {
	seq    uint32
	kind   uint16
	flags  uint16
	family uint8
	attrs  []byte
}

// requestsOf gives the messages between the two that frame a batch.
func requestsOf(t *wire.Transaction) []request {
	t.End()
	var buf []byte
	t.Add(func(b []byte) []byte {
		buf = b
		return b
	})
	requests := make([]request, 0, t.Messages())
	for len(buf) >= headerBytes {
		size := int(binary.NativeEndian.Uint32(buf))
		kind := binary.NativeEndian.Uint16(buf[4:])
		if kind>>8 == unix.NFNL_SUBSYS_NFTABLES {
			requests = append(requests, request{
				seq: binary.NativeEndian.Uint32(buf[8:]), kind: kind & 0xff,
				flags: binary.NativeEndian.Uint16(buf[6:]), family: buf[16], attrs: buf[headerBytes:size],
			})
		}
		buf = buf[(size+attrHeader-1)&^(attrHeader-1):]
	}
	return requests
}

// parse reads the attributes of the message. Flags that are not listed are
// refused, but for those that every message may have.
func (r request) parse(what string, flags uint16, known ...uint16) (fields, error) {
	if more := r.flags &^ (flags | unix.NLM_F_REQUEST | unix.NLM_F_ACK); more != 0 {
		return nil, unknownf("flags %#x of %s", more, what)
	}
	return parseFields(what, r.attrs, headerBytes, known...)
}

// SPDX-License-Identifier: Apache-2.0

package nftmodel

import (
	"encoding/binary"
	"fmt"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane/nftables/wire"
	"github.com/sluice-proxy/sluice/internal/netlink"
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

// requestsOf returns the messages between the two that frame a batch.
func requestsOf(t *wire.Transaction) []request {
	requests := make([]request, 0, t.Messages())
	for m := range t.All() {
		n, _ := m.Netfilter(unix.NFNL_SUBSYS_NFTABLES)
		requests = append(requests, request{seq: m.Seq, kind: n.Kind, flags: m.Flags, family: n.Family, attrs: n.Attrs})
	}
	return requests
}

// parse reads the attributes of the message. Flags that are not listed are
// rejected, but for those that every message may have.
func (r request) parse(what string, flags uint16, known ...uint16) (fields, error) {
	if more := r.flags &^ (flags | unix.NLM_F_REQUEST | unix.NLM_F_ACK); more != 0 {
		return fields{}, unknownf("flags %#x of %s", more, what)
	}
	return parseFields(what, r.attrs, headerBytes, known...)
}

// attrHeader is the size of an attribute without its data; attributes begin at
// multiples of it.
const attrHeader = 4

// fields are the attributes of one nest, each at most once.
type fields struct{ list []field }

// field is one attribute.
type field struct {
	kind uint16
	data []byte
	// at is the offset of the attribute in the message.
	at int
}

// get returns an attribute, the zero field when it is absent.
func (f fields) get(kind uint16) field {
	for i := range f.list {
		if f.list[i].kind == kind {
			return f.list[i]
		}
	}
	return field{}
}

// parseFields reads the attributes in b, which begins at an offset of the message.
// One that is not listed is rejected.
func parseFields(what string, b []byte, at int, known ...uint16) (fields, error) {
	found := fields{make([]field, 0, len(known))}
	err := eachAttr(b, at, func(attr netlink.Attr, at int) error {
		if !slices.Contains(known, attr.Type) {
			return unknownf("attribute %d of %s", attr.Type, what)
		}
		if found.has(attr.Type) {
			return unknownf("attribute %d of %s, given twice", attr.Type, what)
		}
		found.list = append(found.list, field{attr.Type, attr.Data, at})
		return nil
	})
	return found, err
}

// parseList reads a list of NFTA_LIST_ELEM.
func parseList(what string, list field) ([]field, error) {
	var found []field
	err := eachAttr(list.data, list.at+attrHeader, func(attr netlink.Attr, at int) error {
		if attr.Type != unix.NFTA_LIST_ELEM {
			return unknownf("attribute %d in the list of %s", attr.Type, what)
		}
		found = append(found, field{attr.Type, attr.Data, at})
		return nil
	})
	return found, err
}

// eachAttr walks over attributes with their offsets; bytes that are none are
// rejected.
func eachAttr(b []byte, at int, each func(netlink.Attr, int) error) error {
	walked := 0
	for attr := range netlink.Attrs(b) {
		if err := each(attr, at+walked); err != nil {
			return err
		}
		walked += (attrHeader + len(attr.Data) + attrHeader - 1) &^ (attrHeader - 1)
	}
	if walked < len(b) {
		return refusef(unix.EINVAL, "%d bytes are no attribute", len(b)-walked)
	}
	return nil
}

func (f fields) has(kind uint16) bool {
	return slices.ContainsFunc(f.list, func(one field) bool { return one.kind == kind })
}

// need rejects a message without the attributes.
func (f fields) need(what string, kinds ...uint16) error {
	for _, kind := range kinds {
		if !f.has(kind) {
			return refusef(unix.EINVAL, "%s without attribute %d", what, kind)
		}
	}
	return nil
}

// uint32 returns a number, 0 when it is absent.
func (f fields) uint32(kind uint16) uint32 {
	if data := f.get(kind).data; len(data) == 4 {
		return binary.BigEndian.Uint32(data)
	}
	return 0
}

// uint64 returns a number, 0 when it is absent.
func (f fields) uint64(kind uint16) uint64 {
	if data := f.get(kind).data; len(data) == 8 {
		return binary.BigEndian.Uint64(data)
	}
	return 0
}

// numbers rejects what should be numbers of so many bytes and are not.
func (f fields) numbers(bytes int, kinds ...uint16) error {
	for _, kind := range kinds {
		if f.has(kind) && len(f.get(kind).data) != bytes {
			return refusef(unix.ERANGE, "attribute %d has %d bytes", kind, len(f.get(kind).data))
		}
	}
	return nil
}

func (f fields) text(kind uint16) string { return netlink.Attr{Data: f.get(kind).data}.Text() }

// rejection is the no to one message.
type rejection struct {
	errno syscall.Errno
	// words say more than the error number.
	words string
	// offset is that of the rejected attribute in the message, 0 if the message
	// is rejected as a whole.
	offset int
}

// Error returns the error number, and the words if there are some.
func (r *rejection) Error() string {
	if r.words == "" {
		return r.errno.Error()
	}
	return fmt.Sprintf("%v (%s)", r.errno, r.words)
}

// refusef rejects a message.
func refusef(errno syscall.Errno, format string, args ...any) error {
	return &rejection{errno: errno, words: fmt.Sprintf(format, args...)}
}

// unknownf rejects what is not understood here, whatever the real kernel would
// make of it.
func unknownf(format string, args ...any) error {
	return refusef(unix.EINVAL, "not modelled: "+format, args...)
}

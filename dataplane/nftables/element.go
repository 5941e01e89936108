package nftables

import (
	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/internal/netlink"
)

// The body of an element is what follows its key in a message: the data, and a
// comment. An element of a set without a comment has an empty body.

// appendData adds the data of an element that maps to an endpoint.
func appendData(b, data []byte) []byte {
	b, mark := netlink.Nest(b, unix.NFTA_SET_ELEM_DATA)
	return netlink.End(netlink.AppendBytes(b, unix.NFTA_DATA_VALUE, data), mark)
}

// appendGoto adds the data of an element that maps to a chain.
func appendGoto(b []byte, chain string) []byte {
	b, mark := netlink.Nest(b, unix.NFTA_SET_ELEM_DATA)
	return netlink.End(appendVerdict(b, verdictGoto, chain), mark)
}

// Verdict codes (linux/netfilter/nf_tables.h), as the kernel sends them.
const (
	verdictDrop = uint32(0)      // NF_DROP
	verdictJump = ^uint32(0) - 2 // NFT_JUMP, -3
	verdictGoto = ^uint32(0) - 3 // NFT_GOTO, -4
)

func appendVerdict(b []byte, code uint32, chain string) []byte {
	b, mark := netlink.Nest(b, unix.NFTA_DATA_VERDICT)
	b = netlink.AppendUint32(b, unix.NFTA_VERDICT_CODE, code)
	if chain != "" {
		b = netlink.AppendText(b, unix.NFTA_VERDICT_CHAIN, chain)
	}
	return netlink.End(b, mark)
}

// commentMax is nft's limit, without the zero at the end.
const commentMax = 127

// commentKind is the entry of user data that holds a comment, in rules as in
// elements.
const commentKind = 0

// appendComment adds a comment as an attribute of the given kind.
func appendComment(b []byte, kind uint16, comment string) []byte {
	comment = comment[:min(len(comment), commentMax)]
	return netlink.AppendBytes(b, kind, udata(nil, commentKind, append([]byte(comment), 0)))
}

// commentIn gives the comment in user data; empty when there is none.
func commentIn(userData []byte) string {
	for len(userData) >= 2 {
		size := int(userData[1])
		if size > len(userData)-2 {
			return ""
		}
		if data := userData[2 : 2+size]; userData[0] == commentKind && size > 0 {
			return string(data[:size-1])
		}
		userData = userData[2+size:]
	}
	return ""
}

// hasRanges tells whether the keys of a container's elements are ranges. Such a
// key is given by its first and its last value, one behind the other.
func hasRanges(container string) bool { return container == elementsOf+setAllowed }

// keyOf gives the key as attributes of an element.
func keyOf(b []byte, id dataplane.ID) []byte {
	if !hasRanges(id.Container) {
		return appendKey(b, unix.NFTA_SET_ELEM_KEY, id.Name)
	}
	half := len(id.Name) / 2
	b = appendKey(b, unix.NFTA_SET_ELEM_KEY, id.Name[:half])
	return appendKey(b, elementKeyEnd, id.Name[half:])
}

// elementKeyEnd is NFTA_SET_ELEM_KEY_END (Linux 5.6).
const elementKeyEnd = 10

func appendKey(b []byte, kind uint16, key string) []byte {
	b, mark := netlink.Nest(b, kind)
	return netlink.End(netlink.AppendString(b, unix.NFTA_DATA_VALUE, key), mark)
}

// parseElement gives an element that the kernel has described.
func parseElement(container string, attrs []byte) dataplane.Object {
	var key, end string
	var data, userData, more []byte
	for attr := range netlink.Attrs(attrs) {
		switch attr.Type {
		case unix.NFTA_SET_ELEM_KEY:
			key = string(netlink.Find(attr.Data, unix.NFTA_DATA_VALUE).Data)
		case elementKeyEnd:
			end = string(netlink.Find(attr.Data, unix.NFTA_DATA_VALUE).Data)
		case unix.NFTA_SET_ELEM_DATA:
			data = normalElementData(attr.Data)
		case unix.NFTA_SET_ELEM_USERDATA:
			userData = netlink.AppendBytes(nil, unix.NFTA_SET_ELEM_USERDATA, attr.Data)
		case unix.NFTA_SET_ELEM_PAD:
		default:
			// Nothing that we write; kept, so that the element is not taken
			// for one of ours.
			more = netlink.AppendBytes(more, attr.Type, attr.Data)
		}
	}
	return dataplane.Object{
		ID: dataplane.ID{Container: container, Name: key + end}, Kind: dataplane.Element,
		Body: string(data) + string(userData) + string(more),
	}
}

// normalElementData gives data in the order in which we write it.
func normalElementData(attrs []byte) []byte {
	b, mark := netlink.Nest(nil, unix.NFTA_SET_ELEM_DATA)
	for attr := range netlink.Attrs(attrs) {
		if attr.Type == unix.NFTA_DATA_VERDICT {
			code := netlink.Find(attr.Data, unix.NFTA_VERDICT_CODE).Uint32()
			b = appendVerdict(b, code, netlink.Find(attr.Data, unix.NFTA_VERDICT_CHAIN).Text())
		} else {
			b = netlink.AppendBytes(b, attr.Type, attr.Data)
		}
	}
	return netlink.End(b, mark)
}

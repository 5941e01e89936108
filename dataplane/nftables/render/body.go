// SPDX-License-Identifier: Apache-2.0

package render

import (
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/nftables/rules"
	"github.com/sluice-proxy/sluice/internal/netlink"
	"github.com/sluice-proxy/sluice/service"
)

// This file encodes the bodies of elements: bytes that the ledger compares, that the writer sends to the
// kernel, and that the reader restores from the kernel's description. Package rules encodes those of chains.
//
// The body of an element consists of the attributes that follow its key in a message: the data and a
// comment. It is empty for an element of a set without a comment.

// appendData adds the data of an element that maps to an endpoint.
func appendData(b, data []byte) []byte {
	b, mark := netlink.Nest(b, unix.NFTA_SET_ELEM_DATA)
	return netlink.End(netlink.AppendBytes(b, unix.NFTA_DATA_VALUE, data), mark)
}

// appendGoto adds the data of an element that maps to a chain.
func appendGoto(b []byte, chain string) []byte {
	b, mark := netlink.Nest(b, unix.NFTA_SET_ELEM_DATA)
	return netlink.End((&rules.Verdict{Code: rules.Goto, Chain: chain}).Append(b), mark)
}

// hasRanges reports whether the keys of a container's elements are ranges. Such a key is
// its first value followed by its last one.
func hasRanges(container string) bool {
	s := setIn[container]
	return s != nil && s.ranges
}

// AppendElementKey adds the key as attributes of an element.
func AppendElementKey(b []byte, id dataplane.ID) []byte {
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

// Origin implements dataplane.Origin.
type Origin struct{}

var _ dataplane.Origin = Origin{}

// Owner returns the Service in the comment of an element: "namespace/name", sometimes with ":port". The
// addresses of node ports have no comment; they belong to the node.
func (Origin) Owner(o *dataplane.Object) (service.Key, bool) {
	if o.Kind != dataplane.Element {
		return service.Key{}, false
	}
	if o.ID.Container == elementsOf+setNodePortAddresses.name {
		return service.Node, true
	}
	comment := rules.Comment(netlink.Find([]byte(o.Body), unix.NFTA_SET_ELEM_USERDATA).Data)
	namespace, rest, found := strings.Cut(comment, "/")
	name, _, _ := strings.Cut(rest, ":")
	return service.Key{Namespace: namespace, Name: name}, found
}

// Refs returns the set of an element and the chain to which it maps, or the sets and chains that
// the rules of a chain name.
func (Origin) Refs(o *dataplane.Object) []dataplane.ID {
	if set, ok := SetOf(o.ID.Container); ok {
		refs := []dataplane.ID{setID(set)}
		if v, ok := rules.VerdictIn(netlink.Find([]byte(o.Body), unix.NFTA_SET_ELEM_DATA).Data); ok && v.Chain != "" {
			refs = append(refs, chainID(v.Chain))
		}
		return refs
	}
	if o.ID.Container != ContainerChain {
		return nil
	}
	return appendReferences(nil, rules.DecodeChain(o.ID.Name, []byte(o.Body)).Rules)
}

package nftables

import (
	"bytes"
	"cmp"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/internal/netlink"
	"github.com/sluice-proxy/sluice/service"
)

// This file has the bodies of elements and chains: the bytes that the ledger compares, the
// kernel takes and the reader restores from what the kernel returns.
//
// The body of an element is what follows its key in a message: the data and a comment. It
// is empty for an element of a set without a comment.

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
	verdictDrop   = uint32(0)      // NF_DROP
	verdictAccept = uint32(1)      // NF_ACCEPT
	verdictJump   = ^uint32(0) - 2 // NFT_JUMP, -3
	verdictGoto   = ^uint32(0) - 3 // NFT_GOTO, -4
	verdictReturn = ^uint32(0) - 4 // NFT_RETURN, -5
)

func appendVerdict(b []byte, code uint32, chain string) []byte {
	b, mark := netlink.Nest(b, unix.NFTA_DATA_VERDICT)
	b = netlink.AppendUint32(b, unix.NFTA_VERDICT_CODE, code)
	if chain != "" {
		b = netlink.AppendText(b, unix.NFTA_VERDICT_CHAIN, chain)
	}
	return netlink.End(b, mark)
}

// commentMax is nft's limit without the zero at the end.
const commentMax = 127

// commentKind is the entry of user data that holds a comment, in rules and in elements.
const commentKind = 0

// appendComment adds a comment as an attribute of the given kind.
func appendComment(b []byte, kind uint16, comment string) []byte {
	comment = comment[:min(len(comment), commentMax)]
	return netlink.AppendBytes(b, kind, udata(nil, commentKind, append([]byte(comment), 0)))
}

// commentIn returns the comment in user data, or "" if there is none.
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

// hasRanges reports whether the keys of a container's elements are ranges. Such a key is
// its first value followed by its last one.
func hasRanges(container string) bool { return container == elementsOf+setAllowed.name }

// keyOf adds the key as attributes of an element.
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

// The body of a chain is a list of attributes of our own: the attributes of the chain
// itself, for a base chain, and then those of each rule.
const (
	bodyChain = 1
	bodyRule  = 2
)

// hook is where the kernel calls a base chain.
type hook struct {
	kind     string // "filter" or "nat"
	number   uint32
	priority int32
}

// policyAccept is NF_ACCEPT: a packet that reaches the end of a base chain goes on.
const policyAccept = 1

// attrs returns the attributes of a base chain.
func (h hook) attrs() []byte {
	b, mark := netlink.Nest(nil, unix.NFTA_CHAIN_HOOK)
	b = netlink.AppendUint32(b, unix.NFTA_HOOK_HOOKNUM, h.number)
	b = netlink.AppendUint32(b, unix.NFTA_HOOK_PRIORITY, uint32(h.priority))
	b = netlink.End(b, mark)
	b = netlink.AppendUint32(b, unix.NFTA_CHAIN_POLICY, policyAccept)
	return netlink.AppendText(b, unix.NFTA_CHAIN_TYPE, h.kind)
}

// chain builds a chain.
type chain struct {
	name string
	body []byte
	refs []dataplane.ID
}

func newChain(name string) *chain { return &chain{name: name, refs: []dataplane.ID{tableID}} }

// newBaseChain builds a chain that the kernel calls.
func newBaseChain(name string, h hook) *chain {
	c := newChain(name)
	c.body = netlink.AppendBytes(c.body, bodyChain, h.attrs())
	return c
}

// add appends a rule.
func (c *chain) add(r *rule) *chain {
	b, mark := netlink.Nest(c.body, bodyRule)
	c.body = netlink.End(r.body(b), mark)
	return c
}

// needs records what the rules refer to.
func (c *chain) needs(ids ...dataplane.ID) *chain {
	c.refs = append(c.refs, ids...)
	return c
}

func (c *chain) object() dataplane.Object {
	return dataplane.Object{ID: chainID(c.name), Kind: dataplane.Owned, Body: string(c.body), Links: dataplane.LinkTo(c.refs...)}
}

// normalChain returns the attributes of a base chain that the kernel describes, or nil for
// a regular chain.
func normalChain(attrs []byte) []byte {
	hooked := netlink.Find(attrs, unix.NFTA_CHAIN_HOOK).Data
	if hooked == nil {
		return nil
	}
	b, mark := netlink.Nest(nil, unix.NFTA_CHAIN_HOOK)
	for attr := range netlink.Attrs(hooked) {
		b = netlink.AppendBytes(b, attr.Type, attr.Data)
	}
	b = netlink.End(b, mark)
	b = netlink.AppendBytes(b, unix.NFTA_CHAIN_POLICY, netlink.Find(attrs, unix.NFTA_CHAIN_POLICY).Data)
	return netlink.AppendText(b, unix.NFTA_CHAIN_TYPE, netlink.Find(attrs, unix.NFTA_CHAIN_TYPE).Text())
}

// chainParts returns the attributes of the chain itself and of each rule.
func chainParts(body string) (base []byte, rules [][]byte) {
	for attr := range netlink.Attrs([]byte(body)) {
		if attr.Type == bodyChain {
			base = attr.Data
		} else {
			rules = append(rules, attr.Data)
		}
	}
	return base, rules
}

// The kernel describes an expression with more attributes than are needed to make it, and
// in another order. The normal form has the needed ones in ascending order. What differs
// in meaning differs in bytes.

// granted lists attributes that mean nothing if they are zero.
var granted = map[string][]uint16{
	"lookup":  {unix.NFTA_LOOKUP_FLAGS},
	"bitwise": {bitwiseOp},
	"numgen":  {unix.NFTA_NG_OFFSET},
	"nat":     {unix.NFTA_NAT_FLAGS},
	"dynset":  {dynsetFlags, unix.NFTA_DYNSET_TIMEOUT},
	"payload": {unix.NFTA_PAYLOAD_CSUM_TYPE, unix.NFTA_PAYLOAD_CSUM_OFFSET},
}

// Attributes that package unix does not name.
const (
	bitwiseOp   = 6 // NFTA_BITWISE_OP, Linux 5.6
	dynsetFlags = 9 // NFTA_DYNSET_FLAGS
)

// natImplied are the flags that the kernel adds to a translation with an address and a
// port.
const natImplied = unix.NF_NAT_RANGE_MAP_IPS | unix.NF_NAT_RANGE_PROTO_SPECIFIED

// normalRule returns the attributes of a rule that the kernel describes.
func normalRule(attrs []byte) []byte {
	var exprs []byte
	for element := range netlink.Attrs(netlink.Find(attrs, unix.NFTA_RULE_EXPRESSIONS).Data) {
		exprs = normalExpr(exprs, element.Data)
	}
	b := netlink.AppendBytes(nil, unix.NFTA_RULE_EXPRESSIONS, exprs)
	if userData := netlink.Find(attrs, unix.NFTA_RULE_USERDATA).Data; len(userData) > 0 {
		if comment := commentIn(userData); comment != "" {
			b = appendComment(b, unix.NFTA_RULE_USERDATA, comment)
		}
	}
	return b
}

// normalExpr adds one expression in normal form.
func normalExpr(b, expr []byte) []byte {
	name := netlink.Find(expr, unix.NFTA_EXPR_NAME).Text()
	attrs := slices.Collect(netlink.Attrs(netlink.Find(expr, unix.NFTA_EXPR_DATA).Data))
	if name == "byteorder" && idleByteorder(attrs) {
		return b
	}
	if name == "nat" {
		attrs = normalNAT(attrs)
	}
	attrs = slices.DeleteFunc(attrs, func(a netlink.Attr) bool {
		return slices.Contains(granted[name], a.Type) && len(bytes.Trim(a.Data, "\x00")) == 0
	})
	slices.SortStableFunc(attrs, func(a, b netlink.Attr) int { return cmp.Compare(a.Type, b.Type) })

	b, element := netlink.Nest(b, unix.NFTA_LIST_ELEM)
	b = netlink.AppendText(b, unix.NFTA_EXPR_NAME, name)
	b, data := netlink.Nest(b, unix.NFTA_EXPR_DATA)
	for _, a := range attrs {
		b = netlink.AppendBytes(b, a.Type, a.Data)
	}
	return netlink.End(netlink.End(b, data), element)
}

// normalNAT omits what follows from the rest: a range that ends where it begins, and the
// flags that announce a range.
func normalNAT(attrs []netlink.Attr) []netlink.Attr {
	value := func(kind uint16) uint32 {
		for _, a := range attrs {
			if a.Type == kind {
				return a.Uint32()
			}
		}
		return 0
	}
	var kept []netlink.Attr
	for _, a := range attrs {
		switch {
		case a.Type == unix.NFTA_NAT_REG_ADDR_MAX && a.Uint32() == value(unix.NFTA_NAT_REG_ADDR_MIN):
		case a.Type == unix.NFTA_NAT_REG_PROTO_MAX && a.Uint32() == value(unix.NFTA_NAT_REG_PROTO_MIN):
		case a.Type == unix.NFTA_NAT_FLAGS && a.Uint32()&^natImplied == 0:
		default:
			kept = append(kept, a)
		}
	}
	return kept
}

// idleByteorder reports whether a conversion changes nothing. nft 1.0.6 makes such a one for
// a protocol number of one byte before a look-up of ranges.
func idleByteorder(attrs []netlink.Attr) bool {
	var size, unit uint32
	for _, a := range attrs {
		switch a.Type {
		case unix.NFTA_BYTEORDER_LEN:
			size = a.Uint32()
		case unix.NFTA_BYTEORDER_SIZE:
			unit = a.Uint32()
		}
	}
	return size < unit
}

var _ dataplane.Origin = (*Writer)(nil)

// Owner reads the comment of an element: "namespace/name", sometimes with ":port". The
// addresses of node ports have none: they are the node's.
func (w *Writer) Owner(o *dataplane.Object) (service.Key, bool) {
	if o.Kind != dataplane.Element {
		return service.Key{}, false
	}
	if o.ID.Container == elementsOf+setNodePortAddresses.name {
		return service.Node, true
	}
	comment := commentIn(netlink.Find([]byte(o.Body), unix.NFTA_SET_ELEM_USERDATA).Data)
	namespace, rest, found := strings.Cut(comment, "/")
	name, _, _ := strings.Cut(rest, ":")
	return service.Key{Namespace: namespace, Name: name}, found
}

// Refs returns the set that an element is in and the chain that it leads to, or the sets
// and chains that the rules of a chain name.
func (w *Writer) Refs(o *dataplane.Object) []dataplane.ID {
	if set, ok := setOf(o.ID.Container); ok {
		refs := []dataplane.ID{setID(set)}
		data := netlink.Find([]byte(o.Body), unix.NFTA_SET_ELEM_DATA).Data
		return appendVerdictRef(refs, data)
	}
	if o.ID.Container != containerChain {
		return nil
	}
	var refs []dataplane.ID
	_, rules := chainParts(o.Body)
	for _, r := range rules {
		for element := range netlink.Attrs(netlink.Find(r, unix.NFTA_RULE_EXPRESSIONS).Data) {
			data := netlink.Find(element.Data, unix.NFTA_EXPR_DATA).Data
			switch netlink.Find(element.Data, unix.NFTA_EXPR_NAME).Text() {
			case "lookup":
				refs = append(refs, setID(netlink.Find(data, unix.NFTA_LOOKUP_SET).Text()))
			case "dynset":
				refs = append(refs, setID(netlink.Find(data, unix.NFTA_DYNSET_SET_NAME).Text()))
			case "immediate":
				refs = appendVerdictRef(refs, netlink.Find(data, unix.NFTA_IMMEDIATE_DATA).Data)
			}
		}
	}
	return refs
}

// appendVerdictRef adds the chain that an element's data leads to, if any.
func appendVerdictRef(refs []dataplane.ID, data []byte) []dataplane.ID {
	verdict := netlink.Find(data, unix.NFTA_DATA_VERDICT).Data
	if chain := netlink.Find(verdict, unix.NFTA_VERDICT_CHAIN).Data; chain != nil {
		refs = append(refs, chainID(netlink.Find(verdict, unix.NFTA_VERDICT_CHAIN).Text()))
	}
	return refs
}

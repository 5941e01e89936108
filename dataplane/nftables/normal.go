package nftables

import (
	"bytes"
	"cmp"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/internal/netlink"
)

// The kernel describes an expression with more attributes, and in another order,
// than are needed to make it. The normal form has what is needed, ascending;
// whatever differs from it in meaning differs in bytes.

// granted lists attributes that say nothing when they are zero.
var granted = map[string][]uint16{
	"lookup":  {unix.NFTA_LOOKUP_FLAGS},
	"bitwise": {bitwiseOp},
	"numgen":  {unix.NFTA_NG_OFFSET},
	"nat":     {unix.NFTA_NAT_FLAGS},
	"dynset":  {dynsetFlags},
}

// Attributes that package unix does not name.
const (
	bitwiseOp   = 6 // NFTA_BITWISE_OP, Linux 5.6
	dynsetFlags = 9 // NFTA_DYNSET_FLAGS
)

// Flags that the kernel adds to a translation by itself, because an address and
// a port are given.
const natImplied = unix.NF_NAT_RANGE_MAP_IPS | unix.NF_NAT_RANGE_PROTO_SPECIFIED

// normalRule gives the attributes of a rule that the kernel has described.
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

// normalNAT leaves out what follows from the rest: a range that ends where it
// begins, and the flags that say that there is one.
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

// idleByteorder tells whether a conversion changes nothing, as nft 1.0.6 makes
// one of a protocol number of one byte before a look-up of ranges.
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

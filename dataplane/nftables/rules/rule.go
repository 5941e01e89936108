// SPDX-License-Identifier: Apache-2.0

// Package rules represents nf_tables rules as data. A [Rule] is a list of expressions of a small closed set of
// types. Everything else is computed from that list: [Rule.Encode] and [DecodeRule] convert it to and from the bytes
// of netlink, [Rule.Text] prints it as nft does, [Rule.References] lists the sets and chains that it names, and
// [Ruleset.Outcomes] follows a packet through the rules of a table (docs/adr/0043-rules-are-data.md).
//
// An expression that only other programs or other kernels use is [Unknown]: it is encoded as it was found, and has
// neither a text nor an outcome.
package rules

import (
	"slices"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/internal/netlink"
)

// Rule is one rule: it ends at the first expression that does not match.
type Rule struct {
	Exprs []Expr
	// Comment has at most 127 bytes.
	Comment string
}

// Encode appends the attributes of the rule in normal form: attributes ascend, and attributes that follow from the
// others are omitted. Equal rules therefore have the same bytes.
func (r *Rule) Encode(b []byte) []byte {
	c := codec{b: b}
	r.encode(&c)
	return c.b
}

// encode is Encode with one codec for several rules, which saves an allocation for each expression.
func (r *Rule) encode(c *codec) {
	list := c.nest(unix.NFTA_RULE_EXPRESSIONS)
	for _, e := range r.Exprs {
		element := c.nest(unix.NFTA_LIST_ELEM)
		c.b = netlink.AppendText(c.b, unix.NFTA_EXPR_NAME, e.name())
		data := c.nest(unix.NFTA_EXPR_DATA)
		e.attrs(c)
		c.end(data)
		c.end(element)
	}
	c.end(list)
	if r.Comment != "" {
		c.b = AppendComment(c.b, unix.NFTA_RULE_USERDATA, r.Comment)
	}
}

// DecodeRule reads the attributes of a rule in normal form or as the kernel describes it.
func DecodeRule(attrs []byte) Rule {
	r := Rule{Comment: Comment(netlink.Find(attrs, unix.NFTA_RULE_USERDATA).Data)}
	for element := range netlink.Attrs(netlink.Find(attrs, unix.NFTA_RULE_EXPRESSIONS).Data) {
		name := netlink.Find(element.Data, unix.NFTA_EXPR_NAME).Text()
		data := netlink.Find(element.Data, unix.NFTA_EXPR_DATA).Data
		if !isIdle(name, data) {
			r.Exprs = append(r.Exprs, decodeExpr(name, data))
		}
	}
	return r
}

// decodeExpr returns the first expression whose attributes are exactly the given ones.
func decodeExpr(name string, data []byte) Expr {
	given := slices.Collect(netlink.Attrs(data))
	for _, e := range candidates(name) {
		c := codec{decoding: true, given: slices.Clone(given)}
		e.attrs(&c)
		if !c.failed && len(c.given) == 0 {
			return e
		}
	}
	var found []byte
	for _, a := range given {
		found = netlink.AppendBytes(found, a.Type, a.Data)
	}
	return &Unknown{Name: name, Attrs: string(found)}
}

// isIdle reports whether an expression has no effect. nft 1.0.6 adds such a conversion of the byte order, of a
// protocol number of one byte, before a lookup of ranges.
func isIdle(name string, data []byte) bool {
	size, unit := netlink.Find(data, unix.NFTA_BYTEORDER_LEN).Uint32(), netlink.Find(data, unix.NFTA_BYTEORDER_SIZE).Uint32()
	return name == "byteorder" && size < unit
}

// References calls the functions with the name of each set and chain that the rule names, in order.
func (r *Rule) References(set, chain func(name string)) {
	for _, e := range r.Exprs {
		switch e := e.(type) {
		case *Member:
			set(e.Set)
		case *VerdictMap:
			set(e.Set)
		case *Map:
			set(e.Set)
		case *Dynset:
			set(e.Set)
		case *Verdict:
			if e.Chain != "" {
				chain(e.Chain)
			}
		}
	}
}

// commentMax is nft's limit, without the zero byte at the end.
const commentMax = 127

// commentKind is the kind of the user-data entry with a comment, in rules and in elements.
const commentKind = 0

// AppendComment appends a comment as an attribute of the given kind.
func AppendComment(b []byte, kind uint16, comment string) []byte {
	comment = comment[:min(len(comment), commentMax)]
	data := append([]byte{commentKind, byte(len(comment) + 1)}, comment...)
	return netlink.AppendBytes(b, kind, append(data, 0))
}

// Comment returns the comment in user data, or "" if there is none.
func Comment(userData []byte) string {
	for len(userData) >= 2 {
		size := int(userData[1])
		if size > len(userData)-2 {
			return ""
		}
		if data := userData[2 : 2+size]; userData[0] == commentKind && size > 0 {
			return string(data[:min(size-1, commentMax)])
		}
		userData = userData[2+size:]
	}
	return ""
}

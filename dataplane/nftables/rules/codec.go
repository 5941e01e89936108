// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"slices"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/internal/netlink"
)

// codec visits the attributes of an expression in ascending order. It appends them to b, or it sets them from the
// given ones. The same description of an expression therefore serves both directions.
type codec struct {
	decoding bool
	b        []byte
	// given are the attributes that no call has taken yet. failed is set if one is missing or has another size or
	// value than expected.
	given  []netlink.Attr
	failed bool
}

// nest opens an attribute that contains others, and end closes it.
func (c *codec) nest(kind uint16) (mark int) {
	c.b, mark = netlink.Nest(c.b, kind)
	return mark
}

func (c *codec) end(mark int) { c.b = netlink.End(c.b, mark) }

// take removes an attribute from the given ones.
func (c *codec) take(kind uint16) (data []byte, ok bool) {
	at := slices.IndexFunc(c.given, func(a netlink.Attr) bool { return a.Type == kind })
	if at < 0 {
		return nil, false
	}
	data = c.given[at].Data
	c.given = slices.Delete(c.given, at, at+1)
	return data, true
}

// need is take for an attribute that must exist. Size 0 means any size.
func (c *codec) need(kind uint16, size int) netlink.Attr {
	data, ok := c.take(kind)
	if !ok || size > 0 && len(data) != size {
		c.failed = true
	}
	return netlink.Attr{Type: kind, Data: data}
}

// uint32 visits a number that the expression must have.
func (c *codec) uint32(kind uint16, n *uint32) {
	if !c.decoding {
		c.b = netlink.AppendUint32(c.b, kind, *n)
		return
	}
	*n = c.need(kind, 4).Uint32()
}

// optional visits a number that is omitted if it is 0.
func (c *codec) optional(kind uint16, n *uint32) {
	if !c.decoding && *n != 0 || c.decoding && c.has(kind) {
		c.uint32(kind, n)
	}
}

// optional64 is optional for a number of 8 bytes.
func (c *codec) optional64(kind uint16, n *uint64) {
	switch {
	case !c.decoding && *n != 0:
		c.b = netlink.AppendUint64(c.b, kind, *n)
	case c.decoding && c.has(kind):
		*n = c.need(kind, 8).Uint64()
	}
}

func (c *codec) has(kind uint16) bool {
	return slices.ContainsFunc(c.given, func(a netlink.Attr) bool { return a.Type == kind })
}

// constant visits a number that is the same in all expressions of a type.
func (c *codec) constant(kind uint16, want uint32) {
	got := want
	c.uint32(kind, &got)
	c.failed = c.failed || got != want
}

// byte visits a number of one byte.
func (c *codec) byte(kind uint16, n *byte) {
	if !c.decoding {
		c.b = netlink.AppendUint8(c.b, kind, *n)
		return
	}
	*n = c.need(kind, 1).Uint8()
}

// implied visits a number that the kernel adds, and that follows from the other attributes.
func (c *codec) implied(kind uint16, follows func(n uint32) bool) {
	if data, ok := c.take(kind); ok {
		c.failed = c.failed || len(data) != 4 || !follows(netlink.Attr{Data: data}.Uint32())
	}
}

func zero(n uint32) bool { return n == 0 }

// text visits a name.
func (c *codec) text(kind uint16, text *string) {
	if !c.decoding {
		c.b = netlink.AppendText(c.b, kind, *text)
		return
	}
	*text = c.need(kind, 0).Text()
}

// value visits the value of a register.
func (c *codec) value(kind uint16, value *string) {
	if !c.decoding {
		mark := c.nest(kind)
		c.b = netlink.AppendString(c.b, unix.NFTA_DATA_VALUE, *value)
		c.end(mark)
		return
	}
	nested := codec{decoding: true, given: slices.Collect(netlink.Attrs(c.need(kind, 0).Data))}
	*value = string(nested.need(unix.NFTA_DATA_VALUE, 0).Data)
	c.failed = c.failed || nested.failed || len(nested.given) > 0
}

// verdict visits a verdict with its chain, if it has one.
func (c *codec) verdict(kind uint16, v *Verdict) {
	if !c.decoding {
		mark := c.nest(kind)
		c.b = v.Append(c.b)
		c.end(mark)
		return
	}
	nested := codec{decoding: true, given: slices.Collect(netlink.Attrs(c.need(kind, 0).Data))}
	inner := codec{decoding: true, given: slices.Collect(netlink.Attrs(nested.need(unix.NFTA_DATA_VERDICT, 0).Data))}
	inner.uint32(unix.NFTA_VERDICT_CODE, &v.Code)
	if inner.has(unix.NFTA_VERDICT_CHAIN) {
		inner.text(unix.NFTA_VERDICT_CHAIN, &v.Chain)
	}
	c.failed = c.failed || nested.failed || inner.failed || len(nested.given) > 0 || len(inner.given) > 0
}

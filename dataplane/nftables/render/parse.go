// SPDX-License-Identifier: Apache-2.0

package render

import (
	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/internal/netlink"
)

// This file restores the objects of elements from the kernel's description.

// Parser restores elements from the kernel's description. It reuses its buffers.
type Parser struct{ draft draft }

// Append appends the elements of a list to objects.
func (p *Parser) Append(objects []dataplane.Object, container string, list []byte) []dataplane.Object {
	p.draft.reset()
	for element := range netlink.Attrs(list) {
		p.draft.parse(container, element.Data)
	}
	return p.draft.appendElements(objects)
}

// parse adds an element as the kernel describes it.
func (d *draft) parse(container string, attrs []byte) {
	var key, end, data, userData []byte
	unknown := false
	for attr := range netlink.Attrs(attrs) {
		switch attr.Type {
		case unix.NFTA_SET_ELEM_KEY:
			key = netlink.Find(attr.Data, unix.NFTA_DATA_VALUE).Data
		case elementKeyEnd:
			end = netlink.Find(attr.Data, unix.NFTA_DATA_VALUE).Data
		case unix.NFTA_SET_ELEM_DATA:
			data = attr.Data
		case unix.NFTA_SET_ELEM_USERDATA:
			userData = attr.Data
		case unix.NFTA_SET_ELEM_PAD:
		case unix.NFTA_SET_ELEM_EXPR:
			unknown = unknown || !hasCounters(container)
		default:
			unknown = true
		}
	}
	name := d.put(func(b []byte) []byte { return append(append(b, key...), end...) })
	for len(d.bytes)%4 != 0 { // attributes begin at a multiple of 4 bytes
		d.bytes = append(d.bytes, 0)
	}
	body := d.put(func(b []byte) []byte {
		if data != nil {
			b = normalElementData(b, data)
		}
		if userData != nil {
			b = netlink.AppendBytes(b, unix.NFTA_SET_ELEM_USERDATA, userData)
		}
		if unknown {
			b = appendUnknown(b, attrs)
		}
		return b
	})
	d.element(container, name, body, nil)
}

// ParseElement returns the object of an element as the kernel describes it.
func ParseElement(container string, attrs []byte) dataplane.Object {
	var d draft
	d.parse(container, attrs)
	return d.objects()[0]
}

// appendUnknown adds the attributes of an element that Sluice never writes, so that its body
// differs from that of every rendered element.
func appendUnknown(b, attrs []byte) []byte {
	for attr := range netlink.Attrs(attrs) {
		switch attr.Type {
		case unix.NFTA_SET_ELEM_KEY, elementKeyEnd, unix.NFTA_SET_ELEM_DATA,
			unix.NFTA_SET_ELEM_USERDATA, unix.NFTA_SET_ELEM_PAD:
		default:
			b = netlink.AppendBytes(b, attr.Type, attr.Data)
		}
	}
	return b
}

// normalElementData adds data in the order in which appendData and appendGoto write it.
func normalElementData(b, attrs []byte) []byte {
	b, mark := netlink.Nest(b, unix.NFTA_SET_ELEM_DATA)
	for attr := range netlink.Attrs(attrs) {
		if attr.Type == unix.NFTA_DATA_VERDICT {
			b = normalVerdict(b, attr.Data)
		} else {
			b = netlink.AppendBytes(b, attr.Type, attr.Data)
		}
	}
	return netlink.End(b, mark)
}

// normalVerdict adds the same bytes as rules.Verdict.Append for the same verdict.
func normalVerdict(b, attrs []byte) []byte {
	b, mark := netlink.Nest(b, unix.NFTA_DATA_VERDICT)
	code := netlink.Find(attrs, unix.NFTA_VERDICT_CODE).Uint32()
	b = netlink.AppendUint32(b, unix.NFTA_VERDICT_CODE, code)
	if chain := netlink.Find(attrs, unix.NFTA_VERDICT_CHAIN).Data; len(chain) > 0 {
		b = netlink.AppendBytes(b, unix.NFTA_VERDICT_CHAIN, chain)
	}
	return netlink.End(b, mark)
}

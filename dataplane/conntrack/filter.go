// SPDX-License-Identifier: Apache-2.0

package conntrack

import (
	"cmp"
	"net/netip"

	"github.com/sluice-proxy/sluice/internal/netlink"
	"github.com/sluice-proxy/sluice/service"
)

// attrFilterOriginal (CTA_FILTER_ORIG_FLAGS) is a bit set of the parts of a tuple that must match
// (net/netfilter/nf_internals.h).
const (
	attrFilterOriginal    = 1
	filterSource          = 1 << 0 // CTA_IP_SRC
	filterDestination     = 1 << 1 // CTA_IP_DST
	filterProtocol        = 1 << 3 // CTA_PROTO_NUM
	filterSourcePort      = 1 << 4 // CTA_PROTO_SRC_PORT
	filterDestinationPort = 1 << 5 // CTA_PROTO_DST_PORT
)

// Destination is the destination to which clients send. Zero fields mean any value: a node port has no address, and a
// ClusterIP with all ports has no port and no protocol.
type Destination struct {
	Addr     netip.Addr
	Port     uint16
	Protocol uint8
}

// Compare defines an order of destinations, which has no meaning.
func (d Destination) Compare(other Destination) int {
	return cmp.Or(d.Addr.Compare(other.Addr), cmp.Compare(d.Port, other.Port), cmp.Compare(d.Protocol, other.Protocol))
}

// Filter selects entries by protocol, address and port of their destination, or of their source. Zero fields match all
// values.
type Filter struct {
	Destination
	Source bool
}

// FilterFor returns the narrowest filter for the entries to a destination. It omits IPv6 addresses, because the kernel
// would list the entries to all other addresses instead (ctnetlink_filter_match_tuple, Linux 5.8 to 6.18 at least).
func FilterFor(d Destination) Filter {
	if d.Addr.Is6() {
		d.Addr = netip.Addr{}
	}
	return Filter{Destination: d}
}

// BySource returns the filter for the entries whose source is the destination of f.
func (f Filter) BySource() Filter {
	f.Source = f.Destination != Destination{}
	return f
}

// Lets reports whether the filter matches an entry.
func (f Filter) Lets(e *Entry) bool {
	if f.Source {
		return f.Covers(e.Connection.Source())
	}
	return f.Covers(e.Connection.Destination())
}

// Covers reports whether the filter matches all entries to a destination, or all entries from it if Source is set.
func (f Filter) Covers(d Destination) bool {
	return (f.Protocol == 0 || f.Protocol == d.Protocol) && (f.Port == 0 || f.Port == d.Port) &&
		(!f.Addr.IsValid() || f.Addr == d.Addr)
}

// append adds the filter to a request. Kernels before Linux 5.8 ignore it, and list all entries of the family.
func (f Filter) append(b []byte, family service.Family) []byte {
	if (f == Filter{}) {
		return b
	}
	address, port := layouts[family].destination, uint16(attrDestinationPort)
	addressFlag, portFlag := uint32(filterDestination), uint32(filterDestinationPort)
	if f.Source {
		address, port, addressFlag, portFlag = layouts[family].source, attrSourcePort, filterSource, filterSourcePort
	}
	var flags uint32
	b, tuple := netlink.Nest(b, attrOriginal|nested)
	if f.Addr.IsValid() {
		flags |= addressFlag
		var ip int
		b, ip = netlink.Nest(b, attrTupleIP|nested)
		b = netlink.AppendBytes(b, address, f.Addr.AsSlice())
		b = netlink.End(b, ip)
	}
	if f.Protocol != 0 {
		flags |= filterProtocol
		var protocol int
		b, protocol = netlink.Nest(b, attrTupleProtocol|nested)
		b = netlink.AppendUint8(b, attrProtocol, f.Protocol)
		if f.Port != 0 {
			flags |= portFlag
			b = netlink.AppendUint16(b, port, f.Port)
		}
		b = netlink.End(b, protocol)
	}
	b = netlink.End(b, tuple)
	b, parts := netlink.Nest(b, attrFilter|nested)
	return netlink.End(netlink.AppendHostUint32(b, attrFilterOriginal, flags), parts)
}

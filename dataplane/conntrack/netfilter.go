// SPDX-License-Identifier: Apache-2.0

package conntrack

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/internal/host/hostaddress"
	"github.com/sluice-proxy/sluice/internal/netlink"
	"github.com/sluice-proxy/sluice/service"
)

// The messages of ctnetlink and the attributes that matter here
// (linux/netfilter/nfnetlink_conntrack.h).
const (
	messageGet    = 1 // IPCTNL_MSG_CT_GET
	messageDelete = 2 // IPCTNL_MSG_CT_DELETE

	attrOriginal = 1  // CTA_TUPLE_ORIG
	attrReply    = 2  // CTA_TUPLE_REPLY
	attrStatus   = 3  // CTA_STATUS
	attrID       = 12 // CTA_ID
	attrZone     = 18 // CTA_ZONE
	attrFilter   = 25 // CTA_FILTER

	attrTupleIP       = 1 // CTA_TUPLE_IP
	attrTupleProtocol = 2 // CTA_TUPLE_PROTO

	attrProtocol        = 1 // CTA_PROTO_NUM
	attrSourcePort      = 2 // CTA_PROTO_SRC_PORT
	attrDestinationPort = 3 // CTA_PROTO_DST_PORT

	// nested marks an attribute that contains others.
	nested = unix.NLA_F_NESTED
)

// attrFilterOriginal (CTA_FILTER_ORIG_FLAGS) is a bit set of the parts of a tuple that
// must match (net/netfilter/nf_internals.h).
const (
	attrFilterOriginal    = 1
	filterSource          = 1 << 0 // CTA_IP_SRC
	filterDestination     = 1 << 1 // CTA_IP_DST
	filterProtocol        = 1 << 3 // CTA_PROTO_NUM
	filterSourcePort      = 1 << 4 // CTA_PROTO_SRC_PORT
	filterDestinationPort = 1 << 5 // CTA_PROTO_DST_PORT
)

const protocolUDP = unix.IPPROTO_UDP

// ipvsDevice has the addresses of Services in IPVS mode. They are not the host's own.
const ipvsDevice = "kube-ipvs0"

// Bits of the status of an entry: IPS_SEEN_REPLY and IPS_OFFLOAD.
const (
	statusReplied   = 1 << 1
	statusOffloaded = 1 << 14
)

// layout has the constants that differ between the families.
type layout struct {
	protocol            uint8  // NFPROTO_…
	source, destination uint16 // CTA_IP_…
}

var layouts = service.PerFamily[layout]{
	service.IPv4: {protocol: unix.NFPROTO_IPV4, source: 1, destination: 2},
	service.IPv6: {protocol: unix.NFPROTO_IPV6, source: 3, destination: 4},
}

// netfilter is the kernel's table of one family, over netlink. It serves one sweep.
type netfilter struct {
	family service.Family
	// inside runs a function in the network namespace to work in.
	inside func(func() error) error
	// filterless omits filters from requests, as if the kernel did not support them.
	filterless bool
	// deleting is a separate socket because flows are deleted while a listing is in
	// progress. It is nil until the first deletion.
	deleting *netlink.Socket
}

var _ kernel = (*netfilter)(nil)

// open opens a socket in the namespace.
func (n *netfilter) open() (socket *netlink.Socket, err error) {
	err = n.inside(func() error {
		socket, err = netlink.Open(netlink.Config{Protocol: unix.NETLINK_NETFILTER})
		return err
	})
	return socket, err
}

func (n *netfilter) close() error {
	if n.deleting == nil {
		return nil
	}
	err := n.deleting.Close()
	n.deleting = nil
	return err
}

func (n *netfilter) addresses() (all []netip.Addr, err error) {
	err = n.inside(func() error {
		all, err = hostaddress.ListWithout(ipvsDevice)
		return err
	})
	return all, err
}

func (n *netfilter) flows(ctx context.Context, only filter, each func(*flow) error) (bool, error) {
	if !n.filterless {
		honoured, err := n.list(ctx, only, true, each)
		if !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.EOPNOTSUPP) {
			return honoured, err
		}
	}
	return n.list(ctx, only, false, each)
}

// list lists flows over a separate socket. Closing it discards the rest of an
// unfinished reply.
func (n *netfilter) list(
	ctx context.Context, only filter, filtered bool, each func(*flow) error,
) (honoured bool, err error) {
	socket, err := n.open()
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, socket.Close()) }()
	request, mark := n.begin(nil, messageGet, unix.NLM_F_DUMP)
	if filtered {
		request = appendFilter(request, n.family, only)
	}
	honoured = true
	var f flow // one for all, which saves memory
	err = socket.Ask(ctx, netlink.Finish(request, mark), func(m netlink.Message) error {
		entry, ok := m.Netfilter(unix.NFNL_SUBSYS_CTNETLINK)
		if !ok {
			return nil
		}
		if f, ok = parseFlow(entry.Attrs); !ok {
			return nil
		}
		honoured = honoured && only.lets(&f)
		return each(&f)
	})
	if err != nil {
		return false, fmt.Errorf("list flows: %w", err)
	}
	return honoured, nil
}

func (n *netfilter) begin(b []byte, kind, flags uint16) (begun []byte, mark int) {
	return netlink.BeginNetfilter(b, unix.NFNL_SUBSYS_CTNETLINK, kind, flags, layouts[n.family].protocol)
}

// remove deletes flows in one request. The kernel reports those that it could not
// delete, and acknowledges the last one.
func (n *netfilter) remove(identities [][]byte) ([]error, error) {
	if n.deleting == nil {
		opened, err := n.open()
		if err != nil {
			return nil, err
		}
		n.deleting = opened
	}
	var request []byte
	for i, identity := range identities {
		flags := uint16(0)
		if i == len(identities)-1 {
			flags = unix.NLM_F_ACK
		}
		var mark int
		request, mark = n.begin(request, messageDelete, flags)
		request = netlink.Finish(appendIdentity(request, identity), mark)
	}
	outcomes := make([]error, len(identities))
	err := n.deleting.Exchange(request, func(at int, a netlink.Answer) {
		if outcomes[at] = a.Err(); a.Errno == unix.ENOENT {
			outcomes[at] = errGone
		}
	})
	if err != nil {
		return nil, fmt.Errorf("delete flows: %w", err)
	}
	return outcomes, nil
}

// appendFilter makes the kernel omit the flows that the filter excludes (Linux 5.8).
// Older kernels ignore it and list every flow of the family.
func appendFilter(b []byte, family service.Family, only filter) []byte {
	if (only == filter{}) {
		return b
	}
	address, port := layouts[family].destination, uint16(attrDestinationPort)
	addressFlag, portFlag := uint32(filterDestination), uint32(filterDestinationPort)
	if only.source {
		address, port, addressFlag, portFlag = layouts[family].source, attrSourcePort, filterSource, filterSourcePort
	}
	var flags uint32
	b, tuple := netlink.Nest(b, attrOriginal|nested)
	if only.addr.IsValid() {
		flags |= addressFlag
		var ip int
		b, ip = netlink.Nest(b, attrTupleIP|nested)
		b = netlink.AppendBytes(b, address, only.addr.AsSlice())
		b = netlink.End(b, ip)
	}
	if only.protocol != 0 {
		flags |= filterProtocol
		var protocol int
		b, protocol = netlink.Nest(b, attrTupleProtocol|nested)
		b = netlink.AppendUint8(b, attrProtocol, only.protocol)
		if only.port != 0 {
			flags |= portFlag
			b = netlink.AppendUint16(b, port, only.port)
		}
		b = netlink.End(b, protocol)
	}
	b = netlink.End(b, tuple)
	b, parts := netlink.Nest(b, attrFilter|nested)
	return netlink.End(netlink.AppendHostUint32(b, attrFilterOriginal, flags), parts)
}

// appendIdentity selects the attributes of an entry by which the kernel deletes exactly
// this entry: the tuple by which it finds the entry, with its zones, and the number that
// distinguishes the entry from a later one with the same tuple.
func appendIdentity(b, attrs []byte) []byte {
	for attr := range netlink.Attrs(attrs) {
		switch attr.Type {
		case attrOriginal:
			b = netlink.AppendBytes(b, attrOriginal|nested, attr.Data)
		case attrZone, attrID:
			b = netlink.AppendBytes(b, attr.Type, attr.Data)
		}
	}
	return b
}

// parseFlow reads the kernel's description of an entry. It returns false if the description is incomplete.
func parseFlow(attrs []byte) (flow, bool) {
	f := flow{identity: attrs}
	for attr := range netlink.Attrs(attrs) {
		switch attr.Type {
		case attrOriginal:
			t := parseTuple(attr.Data)
			f.protocol, f.source, f.destination = t.protocol, t.source, t.destination
		case attrStatus:
			f.replied = attr.Uint32()&statusReplied != 0
		case attrReply:
			f.answerer = parseTuple(attr.Data).source
		}
	}
	return f, f.destination.IsValid() && f.answerer.IsValid()
}

// tuple is one direction of an entry.
type tuple struct {
	source, destination netip.AddrPort
	protocol            uint8
}

func parseTuple(b []byte) tuple {
	var source, destination netip.Addr
	var sourcePort, destinationPort uint16
	var t tuple
	for part := range netlink.Attrs(b) {
		for attr := range netlink.Attrs(part.Data) {
			switch {
			case part.Type == attrTupleIP && attr.Type%2 == 1: // CTA_IP_V4_SRC, CTA_IP_V6_SRC
				source = attr.Addr()
			case part.Type == attrTupleIP:
				destination = attr.Addr()
			case part.Type != attrTupleProtocol:
			case attr.Type == attrProtocol:
				t.protocol = attr.Uint8()
			case attr.Type == attrSourcePort:
				sourcePort = attr.Uint16()
			case attr.Type == attrDestinationPort:
				destinationPort = attr.Uint16()
			}
		}
	}
	t.source = netip.AddrPortFrom(source, sourcePort)
	t.destination = netip.AddrPortFrom(destination, destinationPort)
	return t
}

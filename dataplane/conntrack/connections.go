// SPDX-License-Identifier: Apache-2.0

package conntrack

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane/traffic"
	"github.com/sluice-proxy/sluice/internal/netlink"
	"github.com/sluice-proxy/sluice/service"
)

// Connection is a tracked connection: what its client asked for, and where the kernel sends its packets.
type Connection struct {
	// Number distinguishes it from other connections of its family.
	Number   uint32
	Protocol uint8
	// From and To are the client and the destination that it asked for.
	From, To netip.AddrPort
	// Answerer receives the packets. Seen is the address that it sees as their sender.
	Answerer, Seen netip.AddrPort
	// State is the state of a TCP connection, such as ESTABLISHED. It is empty for other protocols, and for an
	// offloaded connection, whose state the kernel does not report.
	State string
	// Offloaded is set while a flowtable has the connection: its packets bypass netfilter.
	Offloaded bool
	// Accounted is set if the kernel counts its packets and bytes, with the headers of IP and above. Carried then has
	// the counts in both directions. The kernel counts connections that began after net.netfilter.nf_conntrack_acct
	// was set.
	Accounted bool
	Carried   traffic.Counts
	// Began is zero unless net.netfilter.nf_conntrack_timestamp was set before the connection began.
	Began time.Time
}

// Tuple identifies a connection as its client sees it: the client's address and the destination that it asked for.
type Tuple struct {
	Protocol uint8
	From, To netip.AddrPort
}

// Tuple returns the connection's tuple.
func (c *Connection) Tuple() Tuple { return Tuple{c.Protocol, c.From, c.To} }

// Frontend returns the destination; false if no Service has such a protocol.
func (t Tuple) Frontend() (service.Frontend, bool) {
	p, ok := service.ProtocolOf(t.Protocol)
	return service.Frontend{Addr: t.To.Addr(), Port: t.To.Port(), Protocol: p}, ok
}

const (
	attrProtocolInfo = 4 // CTA_PROTOINFO
	attrInfoTCP      = 1 // CTA_PROTOINFO_TCP
	attrTCPState     = 1 // CTA_PROTOINFO_TCP_STATE

	attrCountersIn  = 9  // CTA_COUNTERS_ORIG
	attrCountersOut = 10 // CTA_COUNTERS_REPLY
	attrPackets     = 1  // CTA_COUNTERS_PACKETS
	attrBytes       = 2  // CTA_COUNTERS_BYTES
	attrTimestamp   = 20 // CTA_TIMESTAMP
	attrStart       = 1  // CTA_TIMESTAMP_START
)

// tcpStates are the names of enum tcp_conntrack.
var tcpStates = [...]string{
	"", "SYN_SENT", "SYN_RECV", "ESTABLISHED", "FIN_WAIT", "CLOSE_WAIT", "LAST_ACK", "TIME_WAIT", "CLOSE", "SYN_SENT2",
}

// Connections lists the connections of a client to a destination; port 0 of the client means all
// of its ports. It returns the first ones, up to most, and the number of others. Kernels before Linux
// 5.8 list their whole table, from which it selects.
func Connections(ctx context.Context, protocol service.Protocol, from, to netip.AddrPort, most int) (list []Connection, more int, err error) {
	family := service.FamilyOf(to.Addr())
	for _, filtered := range []bool{true, false} {
		list, more = nil, 0
		var filter []byte
		if filtered {
			filter = appendConnectionFilter(nil, family, protocol, to)
		}
		err = eachConnection(ctx, here, family, filter, func(c Connection) {
			switch {
			case c.Protocol != protocol.Number() || c.To != to || c.From.Addr() != from.Addr() || from.Port() != 0 && c.From.Port() != from.Port():
			case len(list) < most:
				list = append(list, c)
			default:
				more++
			}
		})
		if !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.EOPNOTSUPP) {
			break
		}
	}
	if err != nil {
		return nil, 0, fmt.Errorf("list connections: %w", err)
	}
	return list, more, nil
}

// Translated calls each with all connections of a family that do not lead to the destination their client asked for.
func Translated(ctx context.Context, family service.Family, each func(Connection)) error {
	err := eachConnection(ctx, here, family, nil, func(c Connection) {
		if c.translated() {
			each(c)
		}
	})
	if err != nil {
		return fmt.Errorf("list connections: %w", err)
	}
	return nil
}

// translated reports whether the connection leads to another destination than its client asked for.
func (c *Connection) translated() bool { return c.Answerer != c.To }

// here runs a function in the process's own network namespace.
func here(f func() error) error { return f() }

// eachConnection lists the connections of a family in a network namespace. With a filter, the kernel lists only those
// that match (Linux 5.8).
func eachConnection(ctx context.Context, inside func(func() error) error, family service.Family, filter []byte, each func(Connection)) (err error) {
	n := netfilter{family: family, inside: inside}
	socket, err := n.open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, socket.Close()) }()
	request, mark := n.begin(nil, messageGet, unix.NLM_F_DUMP)
	return socket.Ask(ctx, netlink.Finish(append(request, filter...), mark), func(m netlink.Message) error {
		if entry, ok := m.Netfilter(unix.NFNL_SUBSYS_CTNETLINK); ok {
			each(parseConnection(entry.Attrs))
		}
		return nil
	})
}

// appendConnectionFilter makes the kernel list only connections to a destination. The filter omits
// IPv6 addresses; see filterFor.
func appendConnectionFilter(b []byte, family service.Family, protocol service.Protocol, to netip.AddrPort) []byte {
	b, tuple := netlink.Nest(b, attrOriginal|nested)
	flags := uint32(filterProtocol | filterDestinationPort)
	if family == service.IPv4 {
		flags |= filterDestination
		var ip int
		b, ip = netlink.Nest(b, attrTupleIP|nested)
		b = netlink.End(netlink.AppendBytes(b, layouts[family].destination, to.Addr().AsSlice()), ip)
	}
	b, proto := netlink.Nest(b, attrTupleProtocol|nested)
	b = netlink.AppendUint8(b, attrProtocol, protocol.Number())
	b = netlink.AppendUint16(b, attrDestinationPort, to.Port())
	b = netlink.End(netlink.End(b, proto), tuple)
	b, parts := netlink.Nest(b, attrFilter|nested)
	return netlink.End(netlink.AppendHostUint32(b, attrFilterOriginal, flags), parts)
}

func parseConnection(attrs []byte) (c Connection) {
	for attr := range netlink.Attrs(attrs) {
		switch attr.Type {
		case attrOriginal:
			t := parseTuple(attr.Data)
			c.From, c.To, c.Protocol = t.source, t.destination, t.protocol
		case attrReply:
			t := parseTuple(attr.Data)
			c.Answerer, c.Seen = t.source, t.destination
		case attrStatus:
			c.Offloaded = attr.Uint32()&statusOffloaded != 0
		case attrID:
			c.Number = attr.Uint32()
		case attrCountersIn:
			c.Accounted = true
			c.Carried.PacketsIn, c.Carried.BytesIn = counters(attr.Data)
		case attrCountersOut:
			c.Carried.PacketsOut, c.Carried.BytesOut = counters(attr.Data)
		case attrTimestamp:
			c.Began = time.Unix(0, int64(netlink.Find(attr.Data, attrStart).Uint64()))
		case attrProtocolInfo:
			state := netlink.Find(netlink.Find(attr.Data, attrInfoTCP).Data, attrTCPState)
			if len(state.Data) == 1 && int(state.Data[0]) < len(tcpStates) {
				c.State = tcpStates[state.Data[0]]
			}
		}
	}
	return c
}

// counters reads the counters of one direction.
func counters(b []byte) (packets, bytes uint64) {
	return netlink.Find(b, attrPackets).Uint64(), netlink.Find(b, attrBytes).Uint64()
}

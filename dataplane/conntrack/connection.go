// SPDX-License-Identifier: Apache-2.0

// Package conntrack reads the kernel's connection table over netlink, deletes its entries, and receives the kernel's
// announcements of connections. All of Sluice decodes entries with this package. Two packages below it relate entries
// to Services:
//
//   - cleaner deletes stale flows;
//   - account adds up the traffic of connections to Services, and watches the usage of the table.
package conntrack

import (
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane/traffic"
	"github.com/sluice-proxy/sluice/internal/netlink"
	"github.com/sluice-proxy/sluice/service"
)

// Messages of ctnetlink and their attributes (linux/netfilter/nfnetlink_conntrack.h).
const (
	messageGet        = 1 // IPCTNL_MSG_CT_GET
	messageDelete     = 2 // IPCTNL_MSG_CT_DELETE
	messageStatistics = 4 // IPCTNL_MSG_CT_GET_STATS_CPU

	attrOriginal     = 1  // CTA_TUPLE_ORIG
	attrReply        = 2  // CTA_TUPLE_REPLY
	attrStatus       = 3  // CTA_STATUS
	attrProtocolInfo = 4  // CTA_PROTOINFO
	attrCountersIn   = 9  // CTA_COUNTERS_ORIG
	attrCountersOut  = 10 // CTA_COUNTERS_REPLY
	attrID           = 12 // CTA_ID
	attrZone         = 18 // CTA_ZONE
	attrTimestamp    = 20 // CTA_TIMESTAMP
	attrFilter       = 25 // CTA_FILTER

	attrTupleIP       = 1 // CTA_TUPLE_IP
	attrTupleProtocol = 2 // CTA_TUPLE_PROTO

	attrProtocol        = 1 // CTA_PROTO_NUM
	attrSourcePort      = 2 // CTA_PROTO_SRC_PORT
	attrDestinationPort = 3 // CTA_PROTO_DST_PORT

	attrInfoTCP  = 1 // CTA_PROTOINFO_TCP
	attrTCPState = 1 // CTA_PROTOINFO_TCP_STATE
	attrPackets  = 1 // CTA_COUNTERS_PACKETS
	attrBytes    = 2 // CTA_COUNTERS_BYTES
	attrStart    = 1 // CTA_TIMESTAMP_START

	// nested marks an attribute that contains others.
	nested = unix.NLA_F_NESTED
)

// Bits of the status of an entry: IPS_SEEN_REPLY and IPS_OFFLOAD.
const (
	statusReplied   = 1 << 1
	statusOffloaded = 1 << 14
)

// tcpStates are the names of enum tcp_conntrack.
var tcpStates = [...]string{
	"", "SYN_SENT", "SYN_RECV", "ESTABLISHED", "FIN_WAIT", "CLOSE_WAIT", "LAST_ACK", "TIME_WAIT", "CLOSE", "SYN_SENT2",
}

// layout contains the constants that differ between the IP families.
type layout struct {
	protocol            uint8  // NFPROTO_…
	source, destination uint16 // CTA_IP_…
}

var layouts = service.PerFamily[layout]{
	service.IPv4: {protocol: unix.NFPROTO_IPV4, source: 1, destination: 2},
	service.IPv6: {protocol: unix.NFPROTO_IPV6, source: 3, destination: 4},
}

// Connection is an entry of the table: a connection as its client sees it, and the destination of its packets.
type Connection struct {
	// Number identifies the connection among those of its family.
	Number   uint32
	Protocol uint8
	// From and To are the addresses of the client and of the destination to which the client sends.
	From, To netip.AddrPort
	// Answerer receives the packets. Seen is the source address that it sees.
	Answerer, Seen netip.AddrPort
	// State is the state of a TCP connection, such as ESTABLISHED. It is empty for other protocols and, because the
	// kernel does not report it, for offloaded connections.
	State string
	// Replied is set if the kernel saw packets of the reply direction.
	Replied bool
	// Offloaded is set while a flowtable has the connection: its packets bypass netfilter.
	Offloaded bool
	// Accounted is set if the kernel counts packets and bytes of the connection. Then Carried contains the counters of
	// both directions, with the headers of IP and above. The kernel counts connections that began after
	// net.netfilter.nf_conntrack_acct was set.
	Accounted bool
	Carried   traffic.Counts
	// Began is the start of the connection. It is zero unless net.netfilter.nf_conntrack_timestamp was set before.
	Began time.Time
}

// Tuple identifies a connection as its client sees it.
type Tuple struct {
	Protocol uint8
	From, To netip.AddrPort
}

// Tuple returns the tuple of the connection.
func (c *Connection) Tuple() Tuple { return Tuple{c.Protocol, c.From, c.To} }

// Frontend returns the destination as a frontend, or false if Services cannot have the protocol.
func (t Tuple) Frontend() (service.Frontend, bool) {
	p, ok := service.ProtocolOf(t.Protocol)
	return service.Frontend{Addr: t.To.Addr(), Port: t.To.Port(), Protocol: p}, ok
}

// Destination returns the destination to which the client sends.
func (c *Connection) Destination() Destination { return destination(c.To, c.Protocol) }

// Source returns the address, port and protocol from which the client sends.
func (c *Connection) Source() Destination { return destination(c.From, c.Protocol) }

func destination(at netip.AddrPort, protocol uint8) Destination {
	return Destination{at.Addr(), at.Port(), protocol}
}

// Translated reports whether the packets go to another address or port than the client sends to.
func (c *Connection) Translated() bool { return c.Answerer != c.To }

// Closed reports whether both ends have closed a TCP connection, or one has reset it.
func (c *Connection) Closed() bool { return c.State == "TIME_WAIT" || c.State == "CLOSE" }

// parse decodes the kernel's description of an entry. Missing attributes are zero.
func parse(attrs []byte) (c Connection) {
	for attr := range netlink.Attrs(attrs) {
		switch attr.Type {
		case attrOriginal:
			c.From, c.To, c.Protocol = parseTuple(attr.Data)
		case attrReply:
			c.Answerer, c.Seen, _ = parseTuple(attr.Data)
		case attrStatus:
			c.Replied, c.Offloaded = attr.Uint32()&statusReplied != 0, attr.Uint32()&statusOffloaded != 0
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

// counters decodes the counters of one direction.
func counters(b []byte) (packets, bytes uint64) {
	return netlink.Find(b, attrPackets).Uint64(), netlink.Find(b, attrBytes).Uint64()
}

// parseTuple decodes one direction of an entry.
func parseTuple(b []byte) (from, to netip.AddrPort, protocol uint8) {
	var source, destination netip.Addr
	var sourcePort, destinationPort uint16
	for part := range netlink.Attrs(b) {
		for attr := range netlink.Attrs(part.Data) {
			switch {
			case part.Type == attrTupleIP && attr.Type%2 == 1: // CTA_IP_V4_SRC, CTA_IP_V6_SRC
				source = attr.Addr()
			case part.Type == attrTupleIP:
				destination = attr.Addr()
			case part.Type != attrTupleProtocol:
			case attr.Type == attrProtocol:
				protocol = attr.Uint8()
			case attr.Type == attrSourcePort:
				sourcePort = attr.Uint16()
			case attr.Type == attrDestinationPort:
				destinationPort = attr.Uint16()
			}
		}
	}
	return netip.AddrPortFrom(source, sourcePort), netip.AddrPortFrom(destination, destinationPort), protocol
}

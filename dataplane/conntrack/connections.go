package conntrack

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/internal/netlink"
	"github.com/sluice-proxy/sluice/service"
)

// Connection is a tracked connection as its client made it, and where its packets go.
type Connection struct {
	// From and To are the client and the destination that it asked for.
	From, To netip.AddrPort
	// Answerer is who gets the packets, and Seen whom it sees as their sender.
	Answerer, Seen netip.AddrPort
	// State is that of a TCP connection, such as ESTABLISHED; empty otherwise.
	State string
}

const (
	attrProtocolInfo = 4 // CTA_PROTOINFO
	attrInfoTCP      = 1 // CTA_PROTOINFO_TCP
	attrTCPState     = 1 // CTA_PROTOINFO_TCP_STATE
)

// tcpStates are the names of enum tcp_conntrack.
var tcpStates = [...]string{
	"", "SYN_SENT", "SYN_RECV", "ESTABLISHED", "FIN_WAIT", "CLOSE_WAIT", "LAST_ACK", "TIME_WAIT", "CLOSE", "SYN_SENT2",
}

// Connections lists the connections of a client to a destination; port 0 of the client means all
// of its ports. It returns the first few, and how many more there are. Kernels before Linux 5.8
// pass their whole table through it.
func Connections(ctx context.Context, protocol service.Protocol, from, to netip.AddrPort, most int) (list []Connection, more int, err error) {
	family := service.FamilyOf(to.Addr())
	socket, err := netlink.Open(netlink.Config{Protocol: unix.NETLINK_NETFILTER})
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(err, socket.Close()) }()
	for _, filtered := range []bool{true, false} {
		list, more = nil, 0
		request, mark := netlink.BeginNetfilter(nil, unix.NFNL_SUBSYS_CTNETLINK, messageGet, unix.NLM_F_DUMP, layouts[family].protocol)
		if filtered {
			request = appendConnectionFilter(request, family, protocol, to)
		}
		err = socket.Ask(ctx, netlink.Finish(request, mark), func(m netlink.Message) error {
			entry, ok := m.Netfilter(unix.NFNL_SUBSYS_CTNETLINK)
			if !ok {
				return nil
			}
			c, known := parseConnection(entry.Attrs, protocol)
			switch {
			case !known || c.To != to || c.From.Addr() != from.Addr() || from.Port() != 0 && c.From.Port() != from.Port():
			case len(list) < most:
				list = append(list, c)
			default:
				more++
			}
			return nil
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

// appendConnectionFilter makes the kernel leave out what has another destination. It omits IPv6
// addresses; see filterFor.
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

// parseConnection returns false for another protocol.
func parseConnection(attrs []byte, protocol service.Protocol) (c Connection, ok bool) {
	for attr := range netlink.Attrs(attrs) {
		switch attr.Type {
		case attrOriginal:
			t := parseTuple(attr.Data)
			c.From, c.To, ok = t.source, t.destination, t.protocol == protocol.Number()
		case attrReply:
			t := parseTuple(attr.Data)
			c.Answerer, c.Seen = t.source, t.destination
		case attrProtocolInfo:
			state := netlink.Find(netlink.Find(attr.Data, attrInfoTCP).Data, attrTCPState)
			if len(state.Data) == 1 && int(state.Data[0]) < len(tcpStates) {
				c.State = tcpStates[state.Data[0]]
			}
		}
	}
	return c, ok
}

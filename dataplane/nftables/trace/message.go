// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane/nftables/rules"
	"github.com/sluice-proxy/sluice/internal/netlink"
)

// place is a chain.
type place struct {
	family       uint8 // NFPROTO_…
	table, chain string
}

// event is one message of the kernel: a rule matched, or the packet reached the end of a chain.
type event struct {
	// id identifies a packet, until the kernel reuses the packet's memory for another one.
	id uint32
	at place
	// kind is one of the kinds below.
	kind   uint32
	handle uint64
	// verdict is the rule's or, at the end of a base chain, the policy.
	verdict rules.Verdict
	in, out uint32 // interfaces
	// header is the zero value except in the first message of a base chain.
	header Header
}

// Kinds of messages (enum nft_trace_types).
const (
	kindPolicy = 1
	kindReturn = 2 // by a rule, or at the end of the chain
	kindRule   = 3
)

// Header has the addresses of a packet. The ports are 0 for an ICMP message.
type Header struct {
	From, To netip.AddrPort
	ICMP     bool
}

// Source prints the sender, with its port unless the packet is an ICMP message.
func (h *Header) Source() string { return h.text(h.From) }

// Destination prints the receiver, with its port unless the packet is an ICMP message.
func (h *Header) Destination() string { return h.text(h.To) }

func (h *Header) text(at netip.AddrPort) string {
	if h.ICMP {
		return at.Addr().String()
	}
	return at.String()
}

// parse reads a message. It returns false for a message about something else.
func parse(m netlink.Message) (e event, ok bool) {
	t, ok := m.Netfilter(unix.NFNL_SUBSYS_NFTABLES)
	if !ok || t.Kind != unix.NFT_MSG_TRACE {
		return e, false
	}
	var network, transport []byte
	e.at.family = t.Family
	for attr := range netlink.Attrs(t.Attrs) {
		switch attr.Type {
		case unix.NFTA_TRACE_ID:
			e.id = attr.Uint32()
		case unix.NFTA_TRACE_TABLE:
			e.at.table = attr.Text()
		case unix.NFTA_TRACE_CHAIN:
			e.at.chain = attr.Text()
		case unix.NFTA_TRACE_TYPE:
			e.kind = attr.Uint32()
		case unix.NFTA_TRACE_RULE_HANDLE:
			e.handle = attr.Uint64()
		case unix.NFTA_TRACE_POLICY:
			e.verdict.Code = attr.Uint32()
		case unix.NFTA_TRACE_VERDICT:
			e.verdict.Code = netlink.Find(attr.Data, unix.NFTA_VERDICT_CODE).Uint32()
			e.verdict.Chain = netlink.Find(attr.Data, unix.NFTA_VERDICT_CHAIN).Text()
		case unix.NFTA_TRACE_IIF:
			e.in = attr.Uint32()
		case unix.NFTA_TRACE_OIF:
			e.out = attr.Uint32()
		case unix.NFTA_TRACE_NETWORK_HEADER:
			network = attr.Data
		case unix.NFTA_TRACE_TRANSPORT_HEADER:
			transport = attr.Data
		}
	}
	if e.kind == kindRule && e.handle == 0 {
		e.kind = kindReturn // Linux 6.18 reports the end of a chain as a rule
	}
	e.header = parseHeader(network, transport)
	return e, true
}

// parseHeader reads addresses and ports. It returns the zero value without a whole network header.
func parseHeader(network, transport []byte) (h Header) {
	const bytes4, bytes6 = 20, 40
	protocol := byte(0)
	var from, to netip.Addr
	switch {
	case len(network) >= bytes4 && network[0]>>4 == 4:
		protocol = network[9]
		from, to = netip.AddrFrom4([4]byte(network[12:16])), netip.AddrFrom4([4]byte(network[16:20]))
	case len(network) >= bytes6 && network[0]>>4 == 6:
		protocol = network[6]
		from, to = netip.AddrFrom16([16]byte(network[8:24])), netip.AddrFrom16([16]byte(network[24:40]))
	default:
		return h
	}
	h.ICMP = protocol == unix.IPPROTO_ICMP || protocol == unix.IPPROTO_ICMPV6
	var ports [2]uint16
	if len(transport) >= 4 && !h.ICMP {
		ports = [2]uint16{binary.BigEndian.Uint16(transport), binary.BigEndian.Uint16(transport[2:])}
	}
	h.From, h.To = netip.AddrPortFrom(from, ports[0]), netip.AddrPortFrom(to, ports[1])
	return h
}

// Verdict codes that no rule of the proxy has. Those of netfilter are not negative, and end a base chain.
const (
	verdictContinue = ^uint32(0) // NFT_CONTINUE, -1
	verdictStolen   = 2          // NF_STOLEN
	verdictQueue    = 3          // NF_QUEUE, with a number in the upper half
)

// ends reports whether the message is the last one of a base chain.
func (e *event) ends() bool { return e.kind == kindPolicy || int32(e.verdict.Code) >= 0 }

// drops reports whether the packet ends here.
func (e *event) drops() bool { return e.ends() && e.verdict.Code == rules.Drop }

// verdictText prints a verdict as rules do.
func verdictText(v *rules.Verdict) string {
	switch {
	case v.Code == verdictContinue:
		return "continue"
	case v.Code == verdictStolen:
		return "stolen"
	case int32(v.Code) >= 0 && v.Code&0xff == verdictQueue:
		return "queue"
	default:
		return v.Text()
	}
}

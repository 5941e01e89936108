// SPDX-License-Identifier: Apache-2.0

package nftmodel

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/internal/netlink"
)

// nat returns the packet another destination.
type nat struct {
	header *header
	// addr and port are offsets in the registers; port is -1 for none.
	addr, port int
}

func parseNAT(p *exprParser, data field) (expr, error) {
	f, err := p.attrs("nat", data, []uint16{unix.NFTA_NAT_TYPE, unix.NFTA_NAT_FAMILY, unix.NFTA_NAT_REG_ADDR_MIN}, []uint16{unix.NFTA_NAT_REG_PROTO_MIN}, nil)
	switch {
	case err != nil:
		return nil, err
	case f.uint32(unix.NFTA_NAT_TYPE) != unix.NFT_NAT_DNAT:
		return nil, unknownf("translation of type %d", f.uint32(unix.NFTA_NAT_TYPE))
	case f.uint32(unix.NFTA_NAT_FAMILY) != uint32(p.table.family):
		return nil, refusef(unix.EOPNOTSUPP, "translation to family %d", f.uint32(unix.NFTA_NAT_FAMILY))
	}
	e := &nat{header: p.family(), port: -1}
	if e.addr, err = p.source(f.uint32(unix.NFTA_NAT_REG_ADDR_MIN), e.header.addrBytes); err == nil && f.has(unix.NFTA_NAT_REG_PROTO_MIN) {
		e.port, err = p.source(f.uint32(unix.NFTA_NAT_REG_PROTO_MIN), 2)
	}
	return e, err
}

func (e *nat) allowed(from *base) error {
	return onlyNAT(from, unix.NF_INET_PRE_ROUTING, unix.NF_INET_LOCAL_OUT)
}

// onlyNAT rejects other chains than those of type nat at some hooks.
func onlyNAT(from *base, hooks ...uint32) error {
	if from.kind != "nat" {
		return refusef(unix.EOPNOTSUPP, "a translation in a %s chain", from.kind)
	}
	return onlyAt(from, hooks...)
}

// onlyAt rejects other hooks.
func onlyAt(from *base, hooks ...uint32) error {
	for _, hook := range hooks {
		if from.hook == hook {
			return nil
		}
	}
	return refusef(unix.EOPNOTSUPP, "an expression that is not for hook %d", from.hook)
}

func (e *nat) eval(_ *walker, s *state, r *registers) bool {
	port := s.known.Port()
	if e.port >= 0 {
		port = binary.BigEndian.Uint16(r.load(e.port, 2))
	}
	to := netip.AddrPortFrom(e.header.addr(r, e.addr), port)
	s.delivered = true
	s.translated = s.translated || to != s.known
	s.dst, s.known = to, to
	r.verdict.code = verdictAccept
	return true
}

// masquerade returns the packet a source address of the node.
type masquerade struct{}

const masqueradeFlags = unix.NF_NAT_RANGE_PROTO_RANDOM | unix.NF_NAT_RANGE_PROTO_RANDOM_FULLY | unix.NF_NAT_RANGE_PERSISTENT

func parseMasquerade(p *exprParser, data field) (expr, error) {
	f, err := p.attrs("masq", data, nil, []uint16{unix.NFTA_MASQ_FLAGS}, nil)
	if err != nil {
		return nil, err
	}
	if flags := f.uint32(unix.NFTA_MASQ_FLAGS); flags&^uint32(masqueradeFlags) != 0 {
		return nil, refusef(unix.EINVAL, "masquerade flags %#x", flags)
	}
	return &masquerade{}, nil
}

func (e *masquerade) allowed(from *base) error { return onlyNAT(from, unix.NF_INET_POST_ROUTING) }

func (e *masquerade) eval(_ *walker, s *state, r *registers) bool {
	s.masqueraded = true
	r.verdict.code = verdictAccept
	return true
}

// reject tells the sender that its packet goes nowhere.
type reject struct{}

func parseReject(p *exprParser, data field) (expr, error) {
	f, err := p.attrs("reject", data, []uint16{unix.NFTA_REJECT_TYPE}, nil, []uint16{unix.NFTA_REJECT_ICMP_CODE})
	if err != nil {
		return nil, err
	}
	switch f.uint32(unix.NFTA_REJECT_TYPE) {
	case unix.NFT_REJECT_ICMP_UNREACH:
		if err = f.need("reject", unix.NFTA_REJECT_ICMP_CODE); err == nil {
			err = f.numbers(1, unix.NFTA_REJECT_ICMP_CODE)
		}
	default:
		err = unknownf("reject type %d", f.uint32(unix.NFTA_REJECT_TYPE))
	}
	return &reject{}, err
}

func (e *reject) allowed(from *base) error {
	return onlyAt(from, unix.NF_INET_LOCAL_IN, unix.NF_INET_FORWARD, unix.NF_INET_LOCAL_OUT, unix.NF_INET_PRE_ROUTING)
}

func (e *reject) eval(_ *walker, s *state, r *registers) bool {
	s.fate = rejected
	r.verdict.code = verdictDrop
	return true
}

// counter counts packets on the real kernel. Here it only lets them by.
type counter struct{}

func parseCounter(_ *exprParser, data field) (expr, error) {
	f, err := parseFields("counter", data.data, data.at+attrHeader, unix.NFTA_COUNTER_BYTES, unix.NFTA_COUNTER_PACKETS)
	if err == nil {
		err = f.numbers(8, unix.NFTA_COUNTER_BYTES, unix.NFTA_COUNTER_PACKETS)
	}
	return &counter{}, err
}

// appendCounter adds a counter of a set or of an element.
func appendCounter(b []byte, kind uint16) []byte {
	b, mark := netlink.Nest(b, kind)
	b = netlink.AppendText(b, unix.NFTA_EXPR_NAME, "counter")
	b, data := netlink.Nest(b, unix.NFTA_EXPR_DATA)
	b = netlink.AppendUint64(b, unix.NFTA_COUNTER_BYTES, 0)
	b = netlink.AppendUint64(b, unix.NFTA_COUNTER_PACKETS, 0)
	return netlink.End(netlink.End(b, data), mark)
}

func (e *counter) eval(*walker, *state, *registers) bool { return true }

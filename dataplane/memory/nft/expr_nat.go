package nft

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"
)

// nat gives the packet another destination.
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

// onlyNAT refuses other chains than those of type nat at some hooks.
func onlyNAT(from *base, hooks ...uint32) error {
	if from.kind != "nat" {
		return refusef(unix.EOPNOTSUPP, "a translation in a %s chain", from.kind)
	}
	return onlyAt(from, hooks...)
}

// onlyAt refuses other hooks.
func onlyAt(from *base, hooks ...uint32) error {
	for _, hook := range hooks {
		if from.hook == hook {
			return nil
		}
	}
	return refusef(unix.EOPNOTSUPP, "an expression that is not for hook %d", from.hook)
}

func (e *nat) eval(_ *walker, s *state, r *registers) bool {
	port := s.dst.Port()
	if e.port >= 0 {
		port = binary.BigEndian.Uint16(r.load(e.port, 2))
	}
	to := netip.AddrPortFrom(e.header.addr(r, e.addr), port)
	s.delivered = true
	s.translated = s.translated || to != s.dst
	s.dst = to
	r.verdict.code = verdictAccept
	return true
}

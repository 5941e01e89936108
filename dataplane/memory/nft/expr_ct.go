package nft

import "golang.org/x/sys/unix"

// conntrack loads the state or the status of the connection, which is a new one.
type conntrack struct {
	key uint32
	to  int
}

// Bits of linux/netfilter/nf_conntrack_common.h.
const (
	stateNew   = 1 << 3 // NF_CT_STATE_BIT(IP_CT_NEW)
	statusDNAT = 1 << 5 // IPS_DST_NAT
)

func parseConntrack(p *exprParser, data field) (expr, error) {
	f, err := p.attrs("ct", data, []uint16{unix.NFTA_CT_DREG, unix.NFTA_CT_KEY}, nil, nil)
	if err != nil {
		return nil, err
	}
	key := f.uint32(unix.NFTA_CT_KEY)
	if key != unix.NFT_CT_STATE && key != unix.NFT_CT_STATUS {
		return nil, unknownf("ct key %d", key)
	}
	to, err := p.target(f.uint32(unix.NFTA_CT_DREG), wordBytes)
	return &conntrack{key, to}, err
}

func (e *conntrack) eval(_ *walker, s *state, r *registers) bool {
	bits := uint32(stateNew)
	if e.key == unix.NFT_CT_STATUS {
		bits = 0
		if s.translated {
			bits = statusDNAT
		}
	}
	r.storeUint32(e.to, bits)
	return true
}

package nft

import "golang.org/x/sys/unix"

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

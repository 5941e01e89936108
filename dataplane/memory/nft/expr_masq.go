package nft

import "golang.org/x/sys/unix"

// masquerade gives the packet a source address of the node.
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

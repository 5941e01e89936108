package nft

import "golang.org/x/sys/unix"

// payload loads a part of a header.
type payload struct {
	header    *header
	transport bool
	offset    int
	size      int
	to        int
}

func parsePayload(p *exprParser, data field) (expr, error) {
	f, err := p.attrs("payload", data, []uint16{unix.NFTA_PAYLOAD_DREG, unix.NFTA_PAYLOAD_BASE, unix.NFTA_PAYLOAD_OFFSET, unix.NFTA_PAYLOAD_LEN}, nil, nil)
	if err != nil {
		return nil, err
	}
	size, offset := f.uint32(unix.NFTA_PAYLOAD_LEN), f.uint32(unix.NFTA_PAYLOAD_OFFSET)
	if offset > 255 || size > 255 {
		return nil, refusef(unix.ERANGE, "%d bytes at %d of a header", size, offset)
	}
	e := &payload{header: p.family(), offset: int(offset), size: int(size)}
	if e.to, err = p.target(f.uint32(unix.NFTA_PAYLOAD_DREG), e.size); err != nil {
		return nil, err
	}
	switch f.uint32(unix.NFTA_PAYLOAD_BASE) {
	case unix.NFT_PAYLOAD_NETWORK_HEADER:
		if !e.header.knows(e.offset, e.size) {
			return nil, unknownf("%d bytes at %d of the network header", e.size, e.offset)
		}
	case unix.NFT_PAYLOAD_TRANSPORT_HEADER:
		e.transport = true
		if e.offset+e.size > portBytes {
			return nil, unknownf("%d bytes at %d of the transport header", e.size, e.offset)
		}
	default:
		return nil, unknownf("header %d", f.uint32(unix.NFTA_PAYLOAD_BASE))
	}
	return e, nil
}

func (e *payload) eval(_ *walker, s *state, r *registers) bool {
	b := ports(s)
	if !e.transport {
		b = e.header.bytes(s)
	}
	r.store(e.to, b[e.offset:e.offset+e.size])
	return true
}

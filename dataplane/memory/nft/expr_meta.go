package nft

import "golang.org/x/sys/unix"

// meta loads a property of the packet.
type meta struct {
	key    uint32
	family uint8
	to     int
}

// setMark sets the packet's mark.
type setMark struct{ from int }

// interfaceBytes is IFNAMSIZ.
const interfaceBytes = 16

var metaBytes = map[uint32]int{
	unix.NFT_META_MARK: 4, unix.NFT_META_NFPROTO: 1, unix.NFT_META_L4PROTO: 1,
	unix.NFT_META_IIFNAME: interfaceBytes, unix.NFT_META_OIFNAME: interfaceBytes,
}

func parseMeta(p *exprParser, data field) (expr, error) {
	f, err := p.attrs("meta", data, []uint16{unix.NFTA_META_KEY}, []uint16{unix.NFTA_META_DREG, unix.NFTA_META_SREG}, nil)
	if err != nil {
		return nil, err
	}
	key := f.uint32(unix.NFTA_META_KEY)
	switch {
	case f.has(unix.NFTA_META_DREG) == f.has(unix.NFTA_META_SREG):
		return nil, refusef(unix.EINVAL, "meta with no register, or with two")
	case metaBytes[key] == 0:
		return nil, unknownf("meta key %d", key)
	case f.has(unix.NFTA_META_DREG):
		to, err := p.target(f.uint32(unix.NFTA_META_DREG), metaBytes[key])
		return &meta{key: key, family: p.table.family, to: to}, err
	case key != unix.NFT_META_MARK:
		return nil, refusef(unix.EOPNOTSUPP, "setting meta key %d", key)
	}
	from, err := p.source(f.uint32(unix.NFTA_META_SREG), metaBytes[key])
	return &setMark{from}, err
}

func (e *meta) eval(w *walker, s *state, r *registers) bool {
	switch e.key {
	case unix.NFT_META_MARK:
		r.storeUint32(e.to, s.mark)
	case unix.NFT_META_NFPROTO:
		r.store(e.to, []byte{e.family})
	case unix.NFT_META_L4PROTO:
		r.store(e.to, []byte{s.protocol})
	case unix.NFT_META_IIFNAME:
		r.store(e.to, interfaceName(w.in))
	case unix.NFT_META_OIFNAME:
		r.store(e.to, interfaceName(w.out))
	}
	return true
}

// interfaceName pads a name; that of no interface is all zero.
func interfaceName(name string) []byte {
	b := make([]byte, interfaceBytes)
	copy(b[:interfaceBytes-1], name)
	return b
}

func (e *setMark) eval(_ *walker, s *state, r *registers) bool {
	s.mark = hostUint32(r.load(e.from, wordBytes))
	return true
}

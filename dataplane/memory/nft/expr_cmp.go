package nft

import (
	"bytes"

	"golang.org/x/sys/unix"
)

// compare goes on if a register compares with a value as it should.
type compare struct {
	from  int
	op    uint32
	value []byte
}

func parseCompare(p *exprParser, data field) (expr, error) {
	f, err := p.attrs("cmp", data, []uint16{unix.NFTA_CMP_SREG, unix.NFTA_CMP_OP}, nil, []uint16{unix.NFTA_CMP_DATA})
	if err == nil {
		err = f.need("cmp", unix.NFTA_CMP_DATA)
	}
	if err != nil {
		return nil, err
	}
	value, err := parseValue(f[unix.NFTA_CMP_DATA])
	if err != nil {
		return nil, err
	}
	e := &compare{op: f.uint32(unix.NFTA_CMP_OP), value: bytes.Clone(value)}
	if e.op > unix.NFT_CMP_GTE {
		return nil, refusef(unix.EINVAL, "comparison %d", e.op)
	}
	e.from, err = p.source(f.uint32(unix.NFTA_CMP_SREG), len(value))
	return e, err
}

func (e *compare) eval(_ *walker, _ *state, r *registers) bool {
	c := bytes.Compare(r.load(e.from, len(e.value)), e.value)
	switch e.op {
	case unix.NFT_CMP_EQ:
		return c == 0
	case unix.NFT_CMP_NEQ:
		return c != 0
	case unix.NFT_CMP_LT:
		return c < 0
	case unix.NFT_CMP_LTE:
		return c <= 0
	case unix.NFT_CMP_GT:
		return c > 0
	default:
		return c >= 0
	}
}

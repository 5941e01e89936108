package nft

import (
	"bytes"
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// bitwise computes (register & mask) ^ flip.
type bitwise struct {
	from, to   int
	mask, flip []byte
}

const bitwiseOp = 6 // NFTA_BITWISE_OP, Linux 5.6

func parseBitwise(p *exprParser, data field) (expr, error) {
	f, err := p.attrs("bitwise", data, []uint16{unix.NFTA_BITWISE_SREG, unix.NFTA_BITWISE_DREG, unix.NFTA_BITWISE_LEN},
		[]uint16{bitwiseOp}, []uint16{unix.NFTA_BITWISE_MASK, unix.NFTA_BITWISE_XOR})
	if err == nil {
		err = f.need("bitwise", unix.NFTA_BITWISE_MASK, unix.NFTA_BITWISE_XOR)
	}
	if err != nil {
		return nil, err
	}
	if op := f.uint32(bitwiseOp); op != 0 {
		return nil, unknownf("bitwise operation %d", op)
	}
	size := int(f.uint32(unix.NFTA_BITWISE_LEN))
	if size > 255 {
		return nil, refusef(unix.ERANGE, "bitwise on %d bytes", size)
	}
	e := &bitwise{}
	if e.from, err = p.source(f.uint32(unix.NFTA_BITWISE_SREG), size); err != nil {
		return nil, err
	}
	if e.to, err = p.target(f.uint32(unix.NFTA_BITWISE_DREG), size); err != nil {
		return nil, err
	}
	for kind, operand := range map[uint16]*[]byte{unix.NFTA_BITWISE_MASK: &e.mask, unix.NFTA_BITWISE_XOR: &e.flip} {
		value, err := parseValue(f[kind])
		if err == nil && len(value) != size {
			err = refusef(unix.EINVAL, "bitwise on %d bytes with %d", size, len(value))
		}
		if err != nil {
			return nil, err
		}
		*operand = bytes.Clone(value)
	}
	return e, nil
}

func (e *bitwise) eval(_ *walker, _ *state, r *registers) bool {
	value := bytes.Clone(r.load(e.from, len(e.mask)))
	for i := range value {
		value[i] = value[i]&e.mask[i] ^ e.flip[i]
	}
	r.store(e.to, value)
	return true
}

func hostUint32(b []byte) uint32 { return binary.NativeEndian.Uint32(b) }

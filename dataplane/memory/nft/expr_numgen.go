package nft

import (
	"math"

	"golang.org/x/sys/unix"
)

// numgen loads a random number from offset to offset+modulus-1.
type numgen struct {
	modulus, offset uint32
	to              int
}

func parseNumgen(p *exprParser, data field) (expr, error) {
	f, err := p.attrs("numgen", data, []uint16{unix.NFTA_NG_DREG, unix.NFTA_NG_MODULUS, unix.NFTA_NG_TYPE}, []uint16{unix.NFTA_NG_OFFSET}, nil)
	if err != nil {
		return nil, err
	}
	e := &numgen{modulus: f.uint32(unix.NFTA_NG_MODULUS), offset: f.uint32(unix.NFTA_NG_OFFSET)}
	switch {
	case f.uint32(unix.NFTA_NG_TYPE) != unix.NFT_NG_RANDOM:
		return nil, unknownf("numgen type %d", f.uint32(unix.NFTA_NG_TYPE))
	case e.modulus == 0:
		return nil, refusef(unix.ERANGE, "a random number below 0")
	case uint64(e.offset)+uint64(e.modulus)-1 > math.MaxUint32:
		return nil, refusef(unix.EOVERFLOW, "a random number beyond 32 bits")
	}
	e.to, err = p.target(f.uint32(unix.NFTA_NG_DREG), wordBytes)
	return e, err
}

// eval is not called: the walker draws the number, which may be each of them.
func (e *numgen) eval(*walker, *state, *registers) bool {
	panic("nft: a number is drawn by the walker")
}

func (e *numgen) draw(r *registers, n uint32) { r.storeUint32(e.to, e.offset+n) }

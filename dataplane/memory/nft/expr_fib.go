package nft

import (
	"net/netip"

	"golang.org/x/sys/unix"
)

// fib loads the type of an address of the packet.
type fib struct {
	source bool
	to     int
}

func parseFIB(p *exprParser, data field) (expr, error) {
	f, err := p.attrs("fib", data, []uint16{unix.NFTA_FIB_DREG, unix.NFTA_FIB_RESULT, unix.NFTA_FIB_FLAGS}, nil, nil)
	if err != nil {
		return nil, err
	}
	const either = unix.NFTA_FIB_F_SADDR | unix.NFTA_FIB_F_DADDR
	flags := f.uint32(unix.NFTA_FIB_FLAGS)
	switch {
	case flags&either == 0 || flags&either == either:
		return nil, refusef(unix.EINVAL, "fib flags %#x", flags)
	case flags&^either != 0 || f.uint32(unix.NFTA_FIB_RESULT) != unix.NFT_FIB_RESULT_ADDRTYPE:
		return nil, unknownf("fib flags %#x, result %d", flags, f.uint32(unix.NFTA_FIB_RESULT))
	}
	to, err := p.target(f.uint32(unix.NFTA_FIB_DREG), wordBytes)
	return &fib{source: flags&unix.NFTA_FIB_F_SADDR != 0, to: to}, err
}

func (e *fib) eval(w *walker, s *state, r *registers) bool {
	addr := s.dst.Addr()
	if e.source {
		addr = s.src.Addr()
	}
	r.storeUint32(e.to, w.addressType(addr))
	return true
}

// addressType is RTN_…; there are no routes here that know of broadcasts.
func (w *walker) addressType(a netip.Addr) uint32 {
	switch {
	case w.kernel.local(a):
		return unix.RTN_LOCAL
	case a.IsMulticast():
		return unix.RTN_MULTICAST
	default:
		return unix.RTN_UNICAST
	}
}

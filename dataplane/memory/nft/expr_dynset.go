package nft

import (
	"time"

	"golang.org/x/sys/unix"
)

// dynset puts a key into a set for a time, from now on.
type dynset struct {
	set     *set
	from    int
	timeout time.Duration
}

func parseDynset(p *exprParser, data field) (expr, error) {
	f, err := p.attrs("dynset", data, []uint16{unix.NFTA_DYNSET_OP, unix.NFTA_DYNSET_SREG_KEY}, nil,
		[]uint16{unix.NFTA_DYNSET_SET_NAME, unix.NFTA_DYNSET_TIMEOUT})
	if err == nil {
		err = f.need("dynset", unix.NFTA_DYNSET_SET_NAME)
	}
	if err == nil {
		err = f.numbers(8, unix.NFTA_DYNSET_TIMEOUT)
	}
	if err != nil {
		return nil, err
	}
	e := &dynset{timeout: time.Duration(f.uint64(unix.NFTA_DYNSET_TIMEOUT)) * time.Millisecond}
	if e.set, err = p.table.set(f.text(unix.NFTA_DYNSET_SET_NAME)); err != nil {
		return nil, err
	}
	switch {
	case f.uint32(unix.NFTA_DYNSET_OP) != unix.NFT_DYNSET_OP_UPDATE:
		return nil, unknownf("dynset operation %d", f.uint32(unix.NFTA_DYNSET_OP))
	case e.set.flags&unix.NFT_SET_EVAL == 0 || !e.set.isTimed():
		return nil, refusef(unix.EOPNOTSUPP, "set %s is not filled by packets for a time", e.set.name)
	case e.set.isMap():
		return nil, refusef(unix.EINVAL, "a map is filled without data")
	case e.timeout == 0:
		return nil, unknownf("an update without a timeout")
	}
	e.from, err = p.source(f.uint32(unix.NFTA_DYNSET_SREG_KEY), int(e.set.keyLen))
	return e, err
}

func (e *dynset) uses() []*int { return []*int{&e.set.use} }

func (e *dynset) eval(w *walker, s *state, r *registers) bool {
	return w.remember(s, e.set, string(r.load(e.from, int(e.set.keyLen))), e.timeout)
}

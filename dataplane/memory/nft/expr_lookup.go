package nft

import "golang.org/x/sys/unix"

// lookup goes on if a key is in a set, or is not; a map's data becomes a verdict
// or goes into registers.
type lookup struct {
	set     *set
	from    int
	inverse bool
	// mapped is set if the data is used; to is where it goes, unless it is a
	// verdict.
	mapped bool
	to     int
}

func parseLookup(p *exprParser, data field) (expr, error) {
	f, err := p.attrs("lookup", data, []uint16{unix.NFTA_LOOKUP_SREG}, []uint16{unix.NFTA_LOOKUP_DREG, unix.NFTA_LOOKUP_FLAGS}, []uint16{unix.NFTA_LOOKUP_SET})
	if err == nil {
		err = f.need("lookup", unix.NFTA_LOOKUP_SET)
	}
	if err != nil {
		return nil, err
	}
	if flags := f.uint32(unix.NFTA_LOOKUP_FLAGS); flags&^unix.NFT_LOOKUP_F_INV != 0 {
		return nil, refusef(unix.EINVAL, "lookup flags %#x", flags)
	}
	e := &lookup{inverse: f.uint32(unix.NFTA_LOOKUP_FLAGS) == unix.NFT_LOOKUP_F_INV, mapped: f.has(unix.NFTA_LOOKUP_DREG)}
	if e.set, err = p.table.set(f.text(unix.NFTA_LOOKUP_SET)); err != nil {
		return nil, err
	}
	if e.from, err = p.source(f.uint32(unix.NFTA_LOOKUP_SREG), int(e.set.keyLen)); err != nil {
		return nil, err
	}
	switch {
	case e.mapped && (e.inverse || !e.set.isMap()):
		return nil, refusef(unix.EINVAL, "a look-up of data in a set, or of data that is not there")
	case !e.mapped && e.set.isMap():
		return nil, unknownf("a look-up in a map that wants no data")
	case e.mapped:
		err = e.parseTarget(p, f.uint32(unix.NFTA_LOOKUP_DREG))
	}
	return e, err
}

// parseTarget reads where the data goes.
func (e *lookup) parseTarget(p *exprParser, number uint32) (err error) {
	if (number == unix.NFT_REG_VERDICT) != e.set.isVerdict() {
		return refusef(unix.EINVAL, "a verdict in a register of values, or the reverse")
	}
	if !e.set.isVerdict() {
		e.to, err = p.target(number, int(e.set.dataLen))
	}
	return err
}

func (e *lookup) uses() []*int { return []*int{&e.set.use} }

func (e *lookup) eval(w *walker, s *state, r *registers) bool {
	key := r.load(e.from, int(e.set.keyLen))
	found := w.find(s, e.set, key)
	if (found == nil) != e.inverse {
		return false
	}
	switch {
	case !e.mapped || found == nil:
	case found.verdict != nil:
		r.verdict = *found.verdict
	default:
		r.store(e.to, []byte(found.data))
	}
	return true
}

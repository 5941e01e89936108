// SPDX-License-Identifier: Apache-2.0

package nftmodel

import (
	"bytes"
	"encoding/binary"
	"time"

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
		value, err := parseValue(f.get(kind))
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
	value, err := parseValue(f.get(unix.NFTA_CMP_DATA))
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
	if found != nil {
		r.found, r.in = found, e.set
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

// dynset puts a key into a set for a time, from now on, or removes it.
type dynset struct {
	set *set
	// from and data are offsets of the key and of a map's data.
	from, data int
	deletes    bool
	timeout    time.Duration
}

const dynsetDelete = 2 // NFT_DYNSET_OP_DELETE, Linux 5.4

func parseDynset(p *exprParser, data field) (expr, error) {
	f, err := p.attrs("dynset", data, []uint16{unix.NFTA_DYNSET_OP, unix.NFTA_DYNSET_SREG_KEY},
		[]uint16{unix.NFTA_DYNSET_SREG_DATA}, []uint16{unix.NFTA_DYNSET_SET_NAME, unix.NFTA_DYNSET_TIMEOUT})
	if err == nil {
		err = f.need("dynset", unix.NFTA_DYNSET_SET_NAME)
	}
	if err == nil {
		err = f.numbers(8, unix.NFTA_DYNSET_TIMEOUT)
	}
	if err != nil {
		return nil, err
	}
	operation := f.uint32(unix.NFTA_DYNSET_OP)
	e := &dynset{
		timeout: time.Duration(f.uint64(unix.NFTA_DYNSET_TIMEOUT)) * time.Millisecond, deletes: operation == dynsetDelete,
	}
	if e.set, err = p.table.set(f.text(unix.NFTA_DYNSET_SET_NAME)); err != nil {
		return nil, err
	}
	switch {
	case operation != unix.NFT_DYNSET_OP_UPDATE && !e.deletes:
		return nil, unknownf("dynset operation %d", operation)
	case e.deletes && !e.set.isTimed():
		return nil, unknownf("a deletion from a set without timeouts")
	case !e.set.isTimed():
		return nil, refusef(unix.EOPNOTSUPP, "set %s is not filled for a time", e.set.name)
	case e.set.isMap() && !f.has(unix.NFTA_DYNSET_SREG_DATA):
		return nil, refusef(unix.EINVAL, "a map is filled without data")
	case f.has(unix.NFTA_DYNSET_SREG_DATA) && (!e.set.isMap() || e.set.isVerdict()):
		return nil, refusef(unix.EOPNOTSUPP, "data for a set, or verdicts from registers")
	case e.timeout == 0 != e.deletes:
		return nil, unknownf("an update without a timeout, or a deletion with one")
	}
	if e.from, err = p.source(f.uint32(unix.NFTA_DYNSET_SREG_KEY), int(e.set.keyLen)); err == nil && e.set.isMap() {
		e.data, err = p.source(f.uint32(unix.NFTA_DYNSET_SREG_DATA), int(e.set.dataLen))
	}
	return e, err
}

func (e *dynset) uses() []*int { return []*int{&e.set.use} }

func (e *dynset) eval(w *walker, s *state, r *registers) bool {
	key := string(r.load(e.from, int(e.set.keyLen)))
	if e.deletes {
		w.forget(s, e.set, key)
		return true
	}
	return w.remember(s, e.set, key, string(r.load(e.data, int(e.set.dataLen))), e.timeout)
}

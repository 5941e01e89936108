// SPDX-License-Identifier: Apache-2.0

package nftmodel

import (
	"bytes"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/internal/netlink"
)

// set is a set or a map.
type set struct {
	definition
	table    *table
	name     string
	handle   uint64
	userData string
	elements map[string]*element
	// order contains the elements by key, and lists the messages with all of them. A change of the elements makes both
	// nil. Sets with timeouts have no lists, because the remaining time changes.
	order []*element
	lists [][]byte
	// numbers is the number of the newest element.
	numbers uint64
	// use counts the rules that name the set.
	use int
}

// definition is what two sets must have in common to be the same.
type definition struct {
	flags, keyType, keyLen, dataType, dataLen uint32
	// size is the largest number of elements; 0 for no limit. Two definitions
	// may differ in it.
	size uint32
	// counts says that each element has a counter. In the model it stays 0.
	counts bool
	// fieldLens are the sizes of a key's fields without padding; empty unless
	// the fields are ranges.
	fieldLens []int
}

const (
	flagConcat  = 0x80 // NFT_SET_CONCAT, Linux 5.6
	descConcat  = 2    // NFTA_SET_DESC_CONCAT
	setFieldLen = 1    // NFTA_SET_FIELD_LEN
	setHandle   = 16   // NFTA_SET_HANDLE
	setExpr     = 17   // NFTA_SET_EXPR, Linux 5.7

	knownSetFlags = unix.NFT_SET_INTERVAL | unix.NFT_SET_MAP | unix.NFT_SET_TIMEOUT | unix.NFT_SET_EVAL | flagConcat
	// valueMax is NFT_DATA_VALUE_MAXLEN: all registers together.
	valueMax = 64
	// verdictLen is the size of a verdict inside of a 64-bit kernel.
	verdictLen = 16
	// fieldsMax is NFT_REG32_COUNT.
	fieldsMax = 16
)

func (d *definition) isMap() bool     { return d.flags&unix.NFT_SET_MAP != 0 }
func (d *definition) isRanges() bool  { return d.flags&unix.NFT_SET_INTERVAL != 0 }
func (d *definition) isVerdict() bool { return d.isMap() && d.dataType == unix.NFT_DATA_VERDICT }
func (d *definition) isTimed() bool   { return d.flags&unix.NFT_SET_TIMEOUT != 0 }

func (d *definition) same(o *definition) bool {
	return d.flags == o.flags && d.keyType == o.keyType && d.keyLen == o.keyLen &&
		d.dataType == o.dataType && d.dataLen == o.dataLen && d.counts == o.counts && slices.Equal(d.fieldLens, o.fieldLens)
}

func (b *batch) newSet(r request) error {
	f, err := r.parse("a set", unix.NLM_F_CREATE|unix.NLM_F_EXCL, unix.NFTA_SET_TABLE, unix.NFTA_SET_NAME,
		unix.NFTA_SET_FLAGS, unix.NFTA_SET_KEY_TYPE, unix.NFTA_SET_KEY_LEN, unix.NFTA_SET_DATA_TYPE,
		unix.NFTA_SET_DATA_LEN, unix.NFTA_SET_DESC, unix.NFTA_SET_ID, unix.NFTA_SET_USERDATA, setExpr)
	if err == nil {
		err = f.need("a set", unix.NFTA_SET_TABLE, unix.NFTA_SET_NAME, unix.NFTA_SET_KEY_LEN, unix.NFTA_SET_ID)
	}
	if err != nil {
		return err
	}
	d, err := parseDefinition(f)
	if err != nil {
		return err
	}
	t, err := b.table(r, f)
	if err != nil {
		return err
	}
	name := f.text(unix.NFTA_SET_NAME)
	if old := t.sets[name]; old != nil {
		if r.flags&unix.NLM_F_EXCL != 0 || !old.same(d) {
			return refusef(unix.EEXIST, "set %s exists", name)
		}
		b.changed = true
		return nil
	}
	if r.flags&unix.NLM_F_CREATE == 0 {
		return refusef(unix.ENOENT, "no set %s", name)
	}
	s := &set{
		definition: *d, table: t, name: name, handle: t.nextHandle(),
		userData: string(f.get(unix.NFTA_SET_USERDATA).data), elements: make(map[string]*element),
	}
	b.do(func() { t.sets[name] = s }, func() { delete(t.sets, name) })
	return nil
}

// parseDefinition reads the attributes that define a set.
func parseDefinition(f fields) (*definition, error) {
	if err := f.numbers(4, unix.NFTA_SET_FLAGS, unix.NFTA_SET_KEY_TYPE, unix.NFTA_SET_KEY_LEN,
		unix.NFTA_SET_DATA_TYPE, unix.NFTA_SET_DATA_LEN, unix.NFTA_SET_ID); err != nil {
		return nil, err
	}
	d := &definition{
		flags: f.uint32(unix.NFTA_SET_FLAGS), keyType: f.uint32(unix.NFTA_SET_KEY_TYPE),
		keyLen: f.uint32(unix.NFTA_SET_KEY_LEN), dataType: f.uint32(unix.NFTA_SET_DATA_TYPE),
		dataLen: f.uint32(unix.NFTA_SET_DATA_LEN),
	}
	switch {
	case d.keyLen == 0 || d.keyLen > valueMax:
		return nil, refusef(unix.EINVAL, "keys of %d bytes", d.keyLen)
	case d.flags&^knownSetFlags != 0:
		return nil, unknownf("flags %#x of a set", d.flags)
	case d.isMap() != f.has(unix.NFTA_SET_DATA_TYPE):
		return nil, refusef(unix.EINVAL, "a map without a type of data, or the reverse")
	case d.isVerdict():
		d.dataLen = verdictLen
	case d.isMap() && (d.dataType >= unix.NFT_DATA_VERDICT || d.dataLen == 0 || d.dataLen > valueMax):
		return nil, refusef(unix.EINVAL, "data of type %#x and %d bytes", d.dataType, d.dataLen)
	case !d.isMap() && f.has(unix.NFTA_SET_DATA_LEN):
		return nil, unknownf("a size of data in a set")
	}
	if err := d.parseDescription(f); err != nil {
		return nil, err
	}
	if err := d.parseExpr(f); err != nil {
		return nil, err
	}
	if d.isRanges() && (d.flags&flagConcat == 0 || d.isTimed() || d.flags&unix.NFT_SET_EVAL != 0) {
		return nil, unknownf("ranges with flags %#x", d.flags)
	}
	return d, nil
}

// parseExpr reads the expression of which each element gets a copy.
func (d *definition) parseExpr(f fields) error {
	if !f.has(setExpr) {
		return nil
	}
	e, err := parseFields("an expression", f.get(setExpr).data, f.get(setExpr).at+attrHeader, unix.NFTA_EXPR_NAME, unix.NFTA_EXPR_DATA)
	if err == nil && e.text(unix.NFTA_EXPR_NAME) != "counter" {
		err = unknownf("elements with %q", e.text(unix.NFTA_EXPR_NAME))
	}
	if err == nil {
		_, err = parseCounter(nil, e.get(unix.NFTA_EXPR_DATA))
	}
	d.counts = err == nil
	return err
}

// parseDescription reads the size of a set and the fields of its keys.
func (d *definition) parseDescription(f fields) error {
	desc, err := parseFields("a set's description", f.get(unix.NFTA_SET_DESC).data, f.get(unix.NFTA_SET_DESC).at+attrHeader,
		unix.NFTA_SET_DESC_SIZE, descConcat)
	if err == nil {
		err = desc.numbers(4, unix.NFTA_SET_DESC_SIZE)
	}
	if err != nil {
		return err
	}
	d.size = desc.uint32(unix.NFTA_SET_DESC_SIZE)
	list, err := parseList("a key's fields", desc.get(descConcat))
	if err != nil {
		return err
	}
	total := uint32(0)
	for _, item := range list {
		part, err := parseFields("a key's field", item.data, item.at+attrHeader, setFieldLen)
		if err == nil {
			err = part.numbers(4, setFieldLen)
		}
		if err != nil {
			return err
		}
		n := part.uint32(setFieldLen)
		if n == 0 || n > valueMax {
			return refusef(unix.EINVAL, "a field of %d bytes", n)
		}
		d.fieldLens = append(d.fieldLens, int(n))
		total += uint32(padded(int(n)))
	}
	if n := len(d.fieldLens); n > fieldsMax || n > 0 && total != d.keyLen || (n > 1) != (d.flags&flagConcat != 0) {
		return refusef(unix.EINVAL, "%d fields of %d bytes in a key of %d, flags %#x", n, total, d.keyLen, d.flags)
	}
	return nil
}

// padded is the room that a field has in a key or in registers.
func padded(size int) int { return (size + wordBytes - 1) / wordBytes * wordBytes }

// set returns the set that an attribute names.
func (t *table) set(name string) (*set, error) {
	s := t.sets[name]
	if s == nil {
		return nil, refusef(unix.ENOENT, "no set %s", name)
	}
	return s, nil
}

// deleteSet removes a set with its elements, unless a rule names it.
func (b *batch) deleteSet(r request) error {
	f, err := r.parse("a set", 0, unix.NFTA_SET_TABLE, unix.NFTA_SET_NAME)
	if err != nil {
		return err
	}
	t, err := b.table(r, f)
	if err == nil {
		err = f.need("a set", unix.NFTA_SET_NAME)
	}
	if err != nil {
		return err
	}
	s, err := t.set(f.text(unix.NFTA_SET_NAME))
	if err != nil {
		return err
	}
	if s.use > 0 {
		return refusef(unix.EBUSY, "%d rules name set %s", s.use, s.name)
	}
	b.leaving.set(s)
	b.flushSet(s)
	b.do(func() { delete(t.sets, s.name) }, func() { t.sets[s.name] = s })
	return nil
}

// describe returns the attributes of the set.
func (s *set) describe() []byte {
	b := netlink.AppendText(nil, unix.NFTA_SET_TABLE, s.table.name)
	b = netlink.AppendText(b, unix.NFTA_SET_NAME, s.name)
	b = netlink.AppendUint64(b, setHandle, s.handle)
	if s.flags != 0 {
		b = netlink.AppendUint32(b, unix.NFTA_SET_FLAGS, s.flags)
	}
	b = netlink.AppendUint32(b, unix.NFTA_SET_KEY_TYPE, s.keyType)
	b = netlink.AppendUint32(b, unix.NFTA_SET_KEY_LEN, s.keyLen)
	if s.isMap() {
		b = netlink.AppendUint32(b, unix.NFTA_SET_DATA_TYPE, s.dataType)
		b = netlink.AppendUint32(b, unix.NFTA_SET_DATA_LEN, s.dataLen)
	}
	if s.userData != "" {
		b = netlink.AppendString(b, unix.NFTA_SET_USERDATA, s.userData)
	}
	if s.counts {
		b = appendCounter(b, setExpr)
	}
	b, desc := netlink.Nest(b, unix.NFTA_SET_DESC)
	if s.size > 0 {
		b = netlink.AppendUint32(b, unix.NFTA_SET_DESC_SIZE, s.size)
	}
	if len(s.fieldLens) > 1 {
		var list int
		b, list = netlink.Nest(b, descConcat)
		for _, n := range s.fieldLens {
			var item int
			b, item = netlink.Nest(b, unix.NFTA_LIST_ELEM)
			b = netlink.End(netlink.AppendUint32(b, setFieldLen, uint32(n)), item)
		}
		b = netlink.End(b, list)
	}
	return netlink.End(b, desc)
}

// find returns the element that a key is in, nil when there is none. Of ranges that
// hold it, which may overlap where the kernel overlooks it, the oldest counts.
func (s *set) find(key []byte, now expiry) *element {
	if !s.isRanges() {
		if e := s.elements[string(key)]; e != nil && !e.expired(now) {
			return e
		}
		return nil
	}
	var oldest *element
	for _, e := range s.elements {
		if (oldest == nil || e.number < oldest.number) && s.inRange(e, key) {
			oldest = e
		}
	}
	return oldest
}

// inRange reports whether each field of a key is in the element's range.
func (s *set) inRange(e *element, key []byte) bool {
	at := 0
	for _, n := range s.fieldLens {
		value := key[at : at+n]
		if bytes.Compare(value, []byte(e.key[at:at+n])) < 0 || bytes.Compare(value, []byte(e.last()[at:at+n])) > 0 {
			return false
		}
		at += padded(n)
	}
	return true
}

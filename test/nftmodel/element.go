// SPDX-License-Identifier: Apache-2.0

package nftmodel

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/internal/netlink"
)

// element is one entry of a set. It is never changed, but replaced.
type element struct {
	// key is the first value of a range, and end the last one. It is empty in a
	// set without ranges, and for a range of one value that was given without.
	key, end string
	// data is what a map says, verdict what a verdict map says.
	data     string
	verdict  *verdict
	userData string
	// timeout is 0 for an element that stays; it goes at expires.
	timeout time.Duration
	expires expiry
	// number grows from one element of the set to the next.
	number uint64
	// text is the body, once somebody has asked for it.
	text string
}

// expiry is a moment in nanoseconds since 1970, comparable and small; 0 is never.
type expiry int64

func expiryOf(t time.Time) expiry { return expiry(t.UnixNano()) }

// expired reports whether the element is as good as gone.
func (e *element) expired(now expiry) bool { return e.expires != 0 && e.expires <= now }

// last is the last value of the element.
func (e *element) last() string {
	if e.end == "" {
		return e.key
	}
	return e.end
}

// id names the element within its set.
func (e *element) id() string { return e.key + e.end }

const elementKeyEnd = 10 // NFTA_SET_ELEM_KEY_END, Linux 5.6

// elementsOf reads a message about elements: the set, and a list.
func (b *batch) elementsOf(r request, flags uint16) (*set, []field, bool, error) {
	f, err := r.parse("elements", flags, unix.NFTA_SET_ELEM_LIST_TABLE, unix.NFTA_SET_ELEM_LIST_SET, unix.NFTA_SET_ELEM_LIST_ELEMENTS)
	if err != nil {
		return nil, nil, false, err
	}
	t, err := b.table(r, f)
	if err == nil {
		err = f.need("elements", unix.NFTA_SET_ELEM_LIST_SET)
	}
	if err != nil {
		return nil, nil, false, err
	}
	s, err := t.set(f.text(unix.NFTA_SET_ELEM_LIST_SET))
	if err != nil {
		return nil, nil, false, err
	}
	list, err := parseList("elements", f.get(unix.NFTA_SET_ELEM_LIST_ELEMENTS))
	return s, list, f.has(unix.NFTA_SET_ELEM_LIST_ELEMENTS), err
}

// at says which attribute of a message is rejected.
func at(err error, item field) error {
	if no, ok := err.(*rejection); ok {
		no.offset = item.at
	}
	return err
}

// newElements adds elements. Those before a rejected one stay until the whole
// transaction is taken back.
func (b *batch) newElements(r request) error {
	s, list, given, err := b.elementsOf(r, unix.NLM_F_CREATE|unix.NLM_F_EXCL)
	if err == nil && !given {
		err = refusef(unix.EINVAL, "no elements")
	}
	if err != nil {
		return err
	}
	for _, item := range list {
		e, err := b.parseElement(s, item)
		if err == nil && b.kernel.rejected != nil && b.kernel.rejected(s.element(e.id())) {
			err = refusef(unix.EINVAL, "rejected for a test")
		}
		if err == nil {
			err = b.insert(s, e, r.flags&unix.NLM_F_EXCL != 0)
		}
		if err != nil {
			return at(err, item)
		}
	}
	return nil
}

// parseElement reads an element to add.
func (b *batch) parseElement(s *set, item field) (*element, error) {
	f, err := parseFields("an element", item.data, item.at+attrHeader, unix.NFTA_SET_ELEM_KEY, elementKeyEnd,
		unix.NFTA_SET_ELEM_DATA, unix.NFTA_SET_ELEM_FLAGS, unix.NFTA_SET_ELEM_TIMEOUT, unix.NFTA_SET_ELEM_USERDATA)
	if err == nil {
		err = f.numbers(8, unix.NFTA_SET_ELEM_TIMEOUT)
	}
	if err != nil {
		return nil, err
	}
	if f.uint32(unix.NFTA_SET_ELEM_FLAGS) != 0 {
		// In a set of ranges of one field this would be the end of one.
		return nil, refusef(unix.EINVAL, "element flags %#x", f.uint32(unix.NFTA_SET_ELEM_FLAGS))
	}
	e := &element{userData: string(f.get(unix.NFTA_SET_ELEM_USERDATA).data)}
	if e.key, e.end, err = s.parseKey(f); err != nil {
		return nil, err
	}
	if ms := f.uint64(unix.NFTA_SET_ELEM_TIMEOUT); ms > 0 {
		if !s.isTimed() {
			return nil, refusef(unix.EINVAL, "a timeout in a set without")
		}
		e.timeout = time.Duration(ms) * time.Millisecond
		e.expires = expiryOf(b.now.Add(e.timeout))
	}
	return e, s.parseData(f, e)
}

// parseKey reads the key, and its last value if keys are ranges.
func (s *set) parseKey(f fields) (key, end string, err error) {
	if err := f.need("an element", unix.NFTA_SET_ELEM_KEY); err != nil {
		return "", "", err
	}
	if f.has(elementKeyEnd) && !s.isRanges() {
		return "", "", refusef(unix.EINVAL, "a range in a set without")
	}
	first, err := parseValue(f.get(unix.NFTA_SET_ELEM_KEY))
	if err == nil && len(first) != int(s.keyLen) {
		err = refusef(unix.EINVAL, "a key of %d bytes", len(first))
	}
	if err != nil || !f.has(elementKeyEnd) {
		return string(first), "", err
	}
	last, err := parseValue(f.get(elementKeyEnd))
	if err == nil && len(last) != int(s.keyLen) {
		err = refusef(unix.EINVAL, "a key of %d bytes", len(last))
	}
	return string(first), string(last), err
}

// parseData reads what a map says.
func (s *set) parseData(f fields, e *element) error {
	if f.has(unix.NFTA_SET_ELEM_DATA) != s.isMap() {
		return refusef(unix.EINVAL, "a map's element without data, or the reverse")
	}
	if !s.isMap() {
		return nil
	}
	data := f.get(unix.NFTA_SET_ELEM_DATA)
	if s.isVerdict() {
		v, err := parseVerdict(s.table, data)
		e.verdict = v
		return err
	}
	value, err := parseValue(data)
	if err == nil && len(value) != int(s.dataLen) {
		err = refusef(unix.EINVAL, "data of %d bytes", len(value))
	}
	e.data = string(value)
	return err
}

// parseValue reads NFTA_DATA_VALUE.
func parseValue(nest field) ([]byte, error) {
	f, err := parseFields("a value", nest.data, nest.at+attrHeader, unix.NFTA_DATA_VALUE, unix.NFTA_DATA_VERDICT)
	if err != nil {
		return nil, err
	}
	value := f.get(unix.NFTA_DATA_VALUE).data
	if len(f.list) != 1 || len(value) == 0 {
		return nil, refusef(unix.EINVAL, "a verdict or nothing where a value should be")
	}
	return value, nil
}

// insert adds an element; one that is there already is no error unless it says
// something else.
func (b *batch) insert(s *set, e *element, exclusive bool) error {
	old, err := s.clash(e, expiryOf(b.now))
	if err != nil {
		return err
	}
	if old != nil {
		if exclusive || !old.saysSame(e) {
			return refusef(unix.EEXIST, "the key is there")
		}
		return nil
	}
	if s.size > 0 && len(s.elements) >= int(s.size) {
		return refusef(unix.ENFILE, "set %s is full", s.name)
	}
	s.numbers++
	e.number = s.numbers
	b.put(s, e)
	if e.verdict != nil && e.verdict.chain != nil {
		b.suspicious[s.table] = true
	}
	return nil
}

// clash returns the element that is there with the same key, and rejects ranges
// that overlap another one. The kernel looks at both ends of a range only, and so
// overlooks one that holds another; see nft_pipapo_insert.
func (s *set) clash(e *element, now expiry) (*element, error) {
	if !s.isRanges() {
		return s.find([]byte(e.key), now), nil
	}
	for _, end := range []string{e.key, e.last()} {
		switch old := s.find([]byte(end), now); {
		case old == nil:
		case old.key == e.key && old.last() == e.last():
			return old, nil
		default:
			return nil, refusef(unix.EEXIST, "the range overlaps another one")
		}
	}
	at := 0
	for _, n := range s.fieldLens {
		if e.key[at:at+n] > e.last()[at:at+n] {
			return nil, refusef(unix.EINVAL, "a range that ends before it begins")
		}
		at += padded(n)
	}
	return nil, nil
}

func (e *element) saysSame(o *element) bool {
	return e.data == o.data && (e.verdict == nil || *e.verdict == *o.verdict)
}

// put adds an element in the place of none, or of one that has expired.
func (b *batch) put(s *set, e *element) {
	if old := s.elements[e.id()]; old != nil {
		b.take(s, old)
	}
	b.do(func() { s.add(e) }, func() { s.drop(e.id()) })
	b.lead(e, 1)
}

// take removes an element.
func (b *batch) take(s *set, e *element) {
	b.do(func() { s.drop(e.id()) }, func() { s.add(e) })
	b.lead(e, -1)
}

func (s *set) add(e *element) {
	s.elements[e.id()] = e
	s.order, s.lists = nil, nil
}

func (s *set) drop(id string) {
	delete(s.elements, id)
	s.order, s.lists = nil, nil
}

// lead counts where an element leads.
func (b *batch) lead(e *element, n int) {
	if e.verdict != nil && e.verdict.chain != nil {
		b.count(&e.verdict.chain.use, n)
	}
}

// deleteElements removes the listed elements, or all when none are listed.
func (b *batch) deleteElements(r request) error {
	s, list, given, err := b.elementsOf(r, unix.NLM_F_ECHO)
	if err != nil {
		return err
	}
	var gone []*element
	if !given {
		b.flushSet(s)
		return nil
	}
	for _, item := range list {
		e, err := s.named(item, expiryOf(b.now))
		if err != nil {
			return at(err, item)
		}
		b.take(s, e)
		gone = append(gone, e)
	}
	if r.flags&unix.NLM_F_ECHO != 0 {
		b.echoes = append(b.echoes, netlink.Netfilter{
			Kind: unix.NFT_MSG_DELSETELEM, Family: s.table.family, Attrs: s.elementsMessage(gone, expiryOf(b.now)),
		})
	}
	return nil
}

// named returns the element that a message names by its key; in a set of ranges any
// value inside does.
func (s *set) named(item field, now expiry) (*element, error) {
	f, err := parseFields("an element", item.data, item.at+attrHeader, unix.NFTA_SET_ELEM_KEY, elementKeyEnd)
	if err != nil {
		return nil, err
	}
	key, _, err := s.parseKey(f)
	if err != nil {
		return nil, err
	}
	e := s.find([]byte(key), now)
	if e == nil {
		return nil, refusef(unix.ENOENT, "no such element in set %s", s.name)
	}
	return e, nil
}

func (b *batch) flushSet(s *set) {
	for _, e := range s.sorted() {
		b.take(s, e)
	}
}

// sorted returns the elements in the order of their keys.
func (s *set) sorted() []*element {
	if s.order == nil {
		s.order = slices.AppendSeq(make([]*element, 0, len(s.elements)), maps.Values(s.elements))
		slices.SortFunc(s.order, func(a, b *element) int { return cmp.Compare(a.id(), b.id()) })
	}
	return s.order
}

// describe adds an element to a list.
func (s *set) describeElement(b []byte, e *element, now expiry) []byte {
	b, item := netlink.Nest(b, unix.NFTA_LIST_ELEM)
	b = e.appendContent(b)
	if s.counts {
		b = appendCounter(b, unix.NFTA_SET_ELEM_EXPR)
	}
	if e.timeout > 0 {
		b = netlink.AppendUint64(b, unix.NFTA_SET_ELEM_TIMEOUT, uint64(e.timeout/time.Millisecond))
		b = netlink.AppendUint64(b, unix.NFTA_SET_ELEM_EXPIRATION, uint64(time.Duration(e.expires-now)/time.Millisecond))
	}
	return netlink.End(e.appendUserData(b), item)
}

// appendContent adds the key, and what a map says.
func (e *element) appendContent(b []byte) []byte {
	b = appendValue(b, unix.NFTA_SET_ELEM_KEY, e.key)
	if e.end != "" {
		b = appendValue(b, elementKeyEnd, e.end)
	}
	switch {
	case e.verdict != nil:
		b = e.verdict.describe(b, unix.NFTA_SET_ELEM_DATA)
	case e.data != "":
		b = appendValue(b, unix.NFTA_SET_ELEM_DATA, e.data)
	}
	return b
}

func (e *element) appendUserData(b []byte) []byte {
	if e.userData == "" {
		return b
	}
	return netlink.AppendString(b, unix.NFTA_SET_ELEM_USERDATA, e.userData)
}

func appendValue(b []byte, kind uint16, value string) []byte {
	b, mark := netlink.Nest(b, kind)
	return netlink.End(netlink.AppendString(b, unix.NFTA_DATA_VALUE, value), mark)
}

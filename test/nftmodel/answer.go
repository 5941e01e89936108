// SPDX-License-Identifier: Apache-2.0

package nftmodel

import (
	"cmp"
	"maps"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/internal/netlink"
)

// answer returns the messages of the answer to a question.
func (k *Kernel) answer(kind uint16, family uint8, all bool, attrs []byte) ([]netlink.Netfilter, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	q := &question{kernel: k, family: family, all: all}
	var err error
	// The table, what is asked for in it (NFTA_…_SET, NFTA_RULE_CHAIN), and a
	// chain's name or a list of elements have these numbers in all questions.
	if q.fields, err = parseFields("a question", attrs, headerBytes, tableAttr, 2, 3); err == nil {
		err = q.ask(kind)
	}
	if no, ok := err.(*rejection); ok {
		return nil, no.errno
	}
	return q.messages, err
}

// question is one question and what there is to say to it.
type question struct {
	fields
	kernel   *Kernel
	family   uint8
	all      bool
	messages []netlink.Netfilter
}

func (q *question) ask(kind uint16) error {
	switch kind {
	case unix.NFT_MSG_GETTABLE:
		return q.askTables()
	case unix.NFT_MSG_GETCHAIN:
		return q.askChains()
	case unix.NFT_MSG_GETRULE:
		return q.askRules()
	case unix.NFT_MSG_GETSET:
		return q.askSets()
	case unix.NFT_MSG_GETSETELEM:
		return q.askElements()
	case unix.NFT_MSG_GETGEN:
		q.say(unix.NFT_MSG_NEWGEN, unix.NFPROTO_UNSPEC, netlink.AppendUint32(nil, unix.NFTA_GEN_ID, q.kernel.generation))
		return nil
	default:
		return refusef(unix.EINVAL, "not modelled: question %d", kind)
	}
}

func (q *question) say(kind uint16, family uint8, attrs []byte) {
	q.messages = append(q.messages, netlink.Netfilter{Kind: kind, Family: family, Attrs: attrs})
}

// named returns the table that the question names.
func (q *question) named() (*table, error) {
	if err := q.need("a question", tableAttr); err != nil {
		return nil, err
	}
	return q.kernel.table(q.family, q.text(tableAttr))
}

// tables returns the tables that a list is about, oldest first.
func (q *question) tables() []*table {
	var list []*table
	for _, t := range q.kernel.tables {
		if (q.family == unix.NFPROTO_UNSPEC || t.family == q.family) && (!q.has(tableAttr) || q.text(tableAttr) == t.name) {
			list = append(list, t)
		}
	}
	slices.SortFunc(list, func(a, b *table) int { return cmp.Compare(a.handle, b.handle) })
	return list
}

func (q *question) askTables() error {
	if !q.all {
		t, err := q.named()
		if err == nil {
			q.say(unix.NFT_MSG_NEWTABLE, t.family, t.describe())
		}
		return err
	}
	for _, t := range q.tables() {
		q.say(unix.NFT_MSG_NEWTABLE, t.family, t.describe())
	}
	return nil
}

func (q *question) askChains() error {
	if !q.all {
		t, err := q.named()
		if err != nil {
			return err
		}
		c, err := t.chain(q.text(unix.NFTA_CHAIN_NAME))
		if err == nil {
			q.say(unix.NFT_MSG_NEWCHAIN, t.family, c.describe())
		}
		return err
	}
	for _, t := range q.tables() {
		for _, c := range t.order {
			q.say(unix.NFT_MSG_NEWCHAIN, t.family, c.describe())
		}
	}
	return nil
}

// askRules lists rules; there is no asking for one of them here.
func (q *question) askRules() error {
	if !q.all {
		return unknownf("a question for one rule")
	}
	for _, t := range q.tables() {
		for _, c := range t.order {
			if q.has(unix.NFTA_RULE_CHAIN) && q.text(unix.NFTA_RULE_CHAIN) != c.name {
				continue
			}
			for _, r := range c.rules {
				q.say(unix.NFT_MSG_NEWRULE, t.family, r.describe())
			}
		}
	}
	return nil
}

func (q *question) askSets() error {
	if !q.all {
		t, err := q.named()
		if err != nil {
			return err
		}
		s, err := t.set(q.text(unix.NFTA_SET_NAME))
		if err == nil {
			q.say(unix.NFT_MSG_NEWSET, t.family, s.describe())
		}
		return err
	}
	if q.has(tableAttr) {
		if _, err := q.named(); err != nil {
			return err
		}
	}
	for _, t := range q.tables() {
		for _, s := range slices.SortedFunc(maps.Values(t.sets), func(a, b *set) int { return cmp.Compare(a.handle, b.handle) }) {
			q.say(unix.NFT_MSG_NEWSET, t.family, s.describe())
		}
	}
	return nil
}

// askElements lists all elements of a set, or those that are named.
func (q *question) askElements() error {
	t, err := q.named()
	if err != nil {
		return err
	}
	s, err := t.set(q.text(unix.NFTA_SET_ELEM_LIST_SET))
	if err != nil {
		return err
	}
	now := expiryOf(q.kernel.now())
	if q.all {
		for _, list := range s.listing(now) {
			q.say(unix.NFT_MSG_NEWSETELEM, s.table.family, list)
		}
		return nil
	}
	list, err := parseList("elements", q.fields.get(unix.NFTA_SET_ELEM_LIST_ELEMENTS))
	if err != nil {
		return err
	}
	for _, item := range list {
		e, err := s.named(item, now)
		if err != nil {
			return err
		}
		q.say(unix.NFT_MSG_NEWSETELEM, s.table.family, s.elementsMessage([]*element{e}, now))
	}
	return nil
}

// elementsPerMessage keeps a list below the 64 KiB of an attribute.
const elementsPerMessage = 100

// listing returns the messages that list all elements that have not expired.
func (s *set) listing(now expiry) [][]byte {
	if s.lists != nil {
		return s.lists
	}
	var alive []*element
	for _, e := range s.sorted() {
		if !e.expired(now) {
			alive = append(alive, e)
		}
	}
	var lists [][]byte
	for some := range slices.Chunk(alive, elementsPerMessage) {
		lists = append(lists, s.elementsMessage(some, now))
	}
	if !s.isTimed() {
		s.lists = lists
	}
	return lists
}

func (s *set) elementsMessage(list []*element, now expiry) []byte {
	b := netlink.AppendText(nil, unix.NFTA_SET_ELEM_LIST_TABLE, s.table.name)
	b = netlink.AppendText(b, unix.NFTA_SET_ELEM_LIST_SET, s.name)
	b, mark := netlink.Nest(b, unix.NFTA_SET_ELEM_LIST_ELEMENTS)
	for _, e := range list {
		b = s.describeElement(b, e, now)
	}
	return netlink.End(b, mark)
}

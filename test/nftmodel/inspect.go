// SPDX-License-Identifier: Apache-2.0

package nftmodel

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane/nftables/wire"
	"github.com/sluice-proxy/sluice/internal/netlink"
	"github.com/sluice-proxy/sluice/service"
)

// Name identifies a part of the tables: a chain, a set, or one element of a set. A Name
// with only a family stands for everything in that family.
type Name struct {
	Family            service.Family
	Table, Chain, Set string
	// Key is the key of an element, followed by its last value if it is a range.
	Key string
}

// String formats the name for people.
func (n Name) String() string {
	switch {
	case n.Chain != "":
		return fmt.Sprintf("%v table %s chain %s", n.Family, n.Table, n.Chain)
	case n.Key != "":
		return fmt.Sprintf("%v table %s set %s element %x", n.Family, n.Table, n.Set, n.Key)
	case n.Set != "":
		return fmt.Sprintf("%v table %s set %s", n.Family, n.Table, n.Set)
	default:
		return fmt.Sprintf("%v table %s", n.Family, n.Table)
	}
}

// Item is one part of the tables and its content, as netlink attributes. Two kernels with
// equal items treat every packet alike.
type Item struct {
	Name
	Body string
}

// Items lists the tables of a family with everything in them, except what packets have put
// there: tables by name, and of each its sets with their elements and then its chains. Handles are left out.
func (k *Kernel) Items(family service.Family) []Item {
	k.mu.Lock()
	defer k.mu.Unlock()
	var items []Item
	tables := slices.DeleteFunc(slices.Collect(maps.Values(k.tables)), func(t *table) bool { return familyOf(t.family) != family })
	slices.SortFunc(tables, func(a, b *table) int { return cmp.Compare(a.name, b.name) })
	for _, t := range tables {
		items = append(items, Item{Name{Family: family, Table: t.name}, t.userData})
		for _, name := range slices.Sorted(maps.Keys(t.sets)) {
			s := t.sets[name]
			items = append(items, Item{s.id(), s.body()})
			if s.flags&unix.NFT_SET_EVAL != 0 {
				continue
			}
			for _, e := range s.sorted() {
				items = append(items, Item{s.element(e.id()), e.body()})
			}
		}
		for _, name := range slices.Sorted(maps.Keys(t.chains)) {
			c := t.chains[name]
			items = append(items, Item{c.id(), c.body()})
		}
	}
	return items
}

// Item returns the content of one part of the tables as Items lists it, and reports whether it
// is there.
func (k *Kernel) Item(name Name) (body string, there bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	t := k.tables[tableKey{protocolOf(name.Family), name.Table}]
	if t == nil {
		return "", false
	}
	if name.Chain != "" {
		if c := t.chains[name.Chain]; c != nil {
			return c.body(), true
		}
		return "", false
	}
	s := t.sets[name.Set]
	switch {
	case name.Set == "":
		return t.userData, true
	case s == nil:
		return "", false
	case name.Key == "":
		return s.body(), true
	}
	if e := s.elements[name.Key]; e != nil && s.flags&unix.NFT_SET_EVAL == 0 {
		return e.body(), true
	}
	return "", false
}

// HoldsRanges reports whether a set is one of ranges; false if there is no such set.
func (k *Kernel) HoldsRanges(name Name) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	t := k.tables[tableKey{protocolOf(name.Family), name.Table}]
	return t != nil && t.sets[name.Set] != nil && t.sets[name.Set].isRanges()
}

func (e *element) body() string {
	if e.text == "" {
		e.text = string(e.appendUserData(e.appendContent(nil)))
	}
	return e.text
}

func protocolOf(family service.Family) uint8 {
	if family == service.IPv6 {
		return unix.NFPROTO_IPV6
	}
	return unix.NFPROTO_IPV4
}

func familyOf(protocol uint8) service.Family {
	if protocol == unix.NFPROTO_IPV6 {
		return service.IPv6
	}
	return service.IPv4
}

func (c *chain) id() Name {
	return Name{Family: familyOf(c.table.family), Table: c.table.name, Chain: c.name}
}

func (s *set) id() Name {
	return Name{Family: familyOf(s.table.family), Table: s.table.name, Set: s.name}
}

func (s *set) element(key string) Name {
	name := s.id()
	name.Key = key
	return name
}

// ItemRule is the attribute of a chain's body that holds one rule.
const ItemRule = 100

// body describes where the chain is called, and its rules.
func (c *chain) body() string {
	if c.text != "" {
		return c.text
	}
	b := c.appendBase(nil)
	for _, r := range c.rules {
		rule := netlink.AppendString(nil, unix.NFTA_RULE_EXPRESSIONS, r.text)
		if r.userData != "" {
			rule = netlink.AppendString(rule, unix.NFTA_RULE_USERDATA, r.userData)
		}
		b = netlink.AppendBytes(b, ItemRule, rule)
	}
	c.text = string(b)
	return c.text
}

// body describes the definition of the set.
func (s *set) body() string {
	return fmt.Sprintf("%+v", s.definition) + s.userData
}

// Touched lists the parts of the tables that a transaction would change. Call it before
// the transaction is committed.
func (k *Kernel) Touched(t *wire.Transaction) map[Name]bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	touched := make(map[Name]bool)
	for _, r := range requestsOf(t) {
		k.touch(touched, r)
	}
	return touched
}

func (k *Kernel) touch(touched map[Name]bool, r request) {
	attrs := r.attrs
	name := Name{Family: familyOf(r.family), Table: netlink.Find(attrs, tableAttr).Text()}
	switch r.kind {
	case unix.NFT_MSG_NEWCHAIN, unix.NFT_MSG_DELCHAIN:
		if netlink.Find(attrs, unix.NFTA_CHAIN_HOOK).Data != nil {
			name = Name{Family: name.Family}
			break
		}
		name.Chain = netlink.Find(attrs, unix.NFTA_CHAIN_NAME).Text()
	case unix.NFT_MSG_NEWRULE, unix.NFT_MSG_DELRULE:
		name.Chain = netlink.Find(attrs, unix.NFTA_RULE_CHAIN).Text()
	case unix.NFT_MSG_NEWSET, unix.NFT_MSG_DELSET:
		name.Set = netlink.Find(attrs, unix.NFTA_SET_NAME).Text()
	case unix.NFT_MSG_NEWSETELEM, unix.NFT_MSG_DELSETELEM:
		k.touchElements(touched, name, attrs)
		return
	default:
		name = Name{Family: name.Family}
	}
	touched[name] = true
}

// touchElements adds the elements that a message lists, or their set if it lists none
// or the set holds ranges.
func (k *Kernel) touchElements(touched map[Name]bool, name Name, attrs []byte) {
	name.Set = netlink.Find(attrs, unix.NFTA_SET_ELEM_LIST_SET).Text()
	t := k.tables[tableKey{protocolOf(name.Family), name.Table}]
	list := netlink.Find(attrs, unix.NFTA_SET_ELEM_LIST_ELEMENTS).Data
	if list == nil || t == nil || t.sets[name.Set] == nil || t.sets[name.Set].isRanges() {
		touched[name] = true
		return
	}
	for e := range netlink.Attrs(list) {
		name.Key = string(netlink.Find(netlink.Find(e.Data, unix.NFTA_SET_ELEM_KEY).Data, unix.NFTA_DATA_VALUE).Data)
		touched[name] = true
	}
}

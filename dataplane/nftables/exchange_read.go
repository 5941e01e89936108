package nftables

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/internal/netlink"
)

// users lists the rules of the table, and what sets they refer to.
func (r *reader) users(ctx context.Context) (*users, error) {
	u := &users{rules: make(map[string][][]byte), of: make(map[string][]string)}
	err := r.ask(ctx, unix.NFT_MSG_GETRULE, true, attrs(textAttr{unix.NFTA_RULE_TABLE, TableName}), func(b []byte) {
		chain, body := netlink.Find(b, unix.NFTA_RULE_CHAIN).Text(), normalRule(b)
		u.rules[chain] = append(u.rules[chain], body)
		for _, set := range setsIn(body) {
			if !slices.Contains(u.of[set], chain) {
				u.of[set] = append(u.of[set], chain)
			}
		}
	})
	if err != nil {
		return nil, fmt.Errorf("list rules: %w", err)
	}
	return u, nil
}

// setNames are the attributes of expressions that name a set.
var setNames = map[string]uint16{
	"lookup": unix.NFTA_LOOKUP_SET, "dynset": unix.NFTA_DYNSET_SET_NAME, "objref": unix.NFTA_OBJREF_SET_NAME,
}

// setsIn gives the sets that a rule refers to.
func setsIn(rule []byte) []string {
	var sets []string
	for element := range netlink.Attrs(netlink.Find(rule, unix.NFTA_RULE_EXPRESSIONS).Data) {
		kind, ok := setNames[netlink.Find(element.Data, unix.NFTA_EXPR_NAME).Text()]
		if !ok {
			continue
		}
		if name := netlink.Find(netlink.Find(element.Data, unix.NFTA_EXPR_DATA).Data, kind).Text(); name != "" {
			sets = append(sets, name)
		}
	}
	return sets
}

// renameSet gives a rule with the name of a set exchanged.
func renameSet(rule []byte, from, to string) []byte {
	if from == to || !slices.Contains(setsIn(rule), from) {
		return rule
	}
	var out []byte
	for attr := range netlink.Attrs(rule) {
		if attr.Type != unix.NFTA_RULE_EXPRESSIONS {
			out = netlink.AppendBytes(out, attr.Type, attr.Data)
			continue
		}
		b, list := netlink.Nest(out, attr.Type)
		for element := range netlink.Attrs(attr.Data) {
			name := netlink.Find(element.Data, unix.NFTA_EXPR_NAME).Text()
			var one, data int
			b, one = netlink.Nest(b, unix.NFTA_LIST_ELEM)
			b = netlink.AppendText(b, unix.NFTA_EXPR_NAME, name)
			b, data = netlink.Nest(b, unix.NFTA_EXPR_DATA)
			for a := range netlink.Attrs(netlink.Find(element.Data, unix.NFTA_EXPR_DATA).Data) {
				if kind, ok := setNames[name]; ok && a.Type == kind && a.Text() == from {
					b = netlink.AppendText(b, kind, to)
				} else {
					b = netlink.AppendBytes(b, a.Type, a.Data)
				}
			}
			b = netlink.End(netlink.End(b, data), one)
		}
		out = netlink.End(b, list)
	}
	return out
}

// ruleBody is the body of a chain with such rules, without the chain's own attributes.
func ruleBody(rules [][]byte) string {
	var b []byte
	for _, r := range rules {
		b = netlink.AppendBytes(b, bodyRule, r)
	}
	return string(b)
}

// exchange reads what a set has that is to be defined anew.
func (r *reader) exchange(ctx context.Context, number int, c *dataplane.Change, there *users) (*exchange, error) {
	x := &exchange{name: c.ID.Name, number: number, wanted: c.After.Body, users: there.of[c.ID.Name]}
	timeout := uint64(0)
	request := attrs(textAttr{unix.NFTA_SET_TABLE, TableName}, textAttr{unix.NFTA_SET_NAME, x.name})
	err := r.ask(ctx, unix.NFT_MSG_GETSET, false, request, func(b []byte) {
		timeout = netlink.Find(b, unix.NFTA_SET_TIMEOUT).Uint64()
	})
	if err != nil {
		return nil, goneMeanwhile(err)
	}
	room := sizeOf(x.wanted)
	request = attrs(textAttr{unix.NFTA_SET_ELEM_LIST_TABLE, TableName}, textAttr{unix.NFTA_SET_ELEM_LIST_SET, x.name})
	err = r.ask(ctx, unix.NFT_MSG_GETSETELEM, true, request, func(b []byte) {
		for element := range netlink.Attrs(netlink.Find(b, unix.NFTA_SET_ELEM_LIST_ELEMENTS).Data) {
			kept := carried(element.Data, timeout, x.wanted)
			if kept == nil || room > 0 && len(x.elements) >= room {
				x.left++
				continue
			}
			x.elements = append(x.elements, kept)
			x.bytes += len(kept) + 4
		}
	})
	if err != nil {
		return nil, goneMeanwhile(err)
	}
	for _, chain := range x.users {
		x.bytes += len(ruleBody(there.rules[chain]))
	}
	return x, nil
}

// goneMeanwhile says of what was there a moment ago that it makes a reading torn.
func goneMeanwhile(err error) error {
	if errors.Is(err, unix.ENOENT) {
		return netlink.ErrInterrupted
	}
	return err
}

// Attributes of elements that package unix does not name.
const elementExpressions = 11 // NFTA_SET_ELEM_EXPRESSIONS, Linux 5.11

// carried gives an element as a set of another definition takes it, where timeout is
// that of the set it was in; nil when it is none that the wanted set would have. What
// packets have put in for a time has no place where things stay, nor the reverse.
func carried(element []byte, timeout uint64, wanted string) []byte {
	flags := netlink.Find([]byte(wanted), unix.NFTA_SET_FLAGS).Uint32()
	own := netlink.Find(element, unix.NFTA_SET_ELEM_TIMEOUT).Uint64()
	if own == 0 {
		own = timeout
	}
	passing := flags&unix.NFT_SET_TIMEOUT != 0
	if passing != (own > 0) {
		return nil
	}
	b := make([]byte, 0, len(element)+12)
	for attr := range netlink.Attrs(element) {
		switch attr.Type {
		case unix.NFTA_SET_ELEM_PAD, unix.NFTA_SET_ELEM_EXPR, elementExpressions, unix.NFTA_SET_ELEM_TIMEOUT:
		default:
			b = netlink.AppendBytes(b, attr.Type, attr.Data)
		}
	}
	if passing {
		b = netlink.AppendUint64(b, unix.NFTA_SET_ELEM_TIMEOUT, own)
	}
	return b
}

// sizeOf gives how many elements a set takes, 0 for any number.
func sizeOf(definition string) int {
	description := netlink.Find([]byte(definition), unix.NFTA_SET_DESC).Data
	return int(netlink.Find(description, unix.NFTA_SET_DESC_SIZE).Uint32())
}

// fits reports whether the elements of one definition can be elements of another: their
// keys and data have the same form.
func fits(found, wanted string) bool {
	const form = unix.NFT_SET_MAP | unix.NFT_SET_INTERVAL | flagConcat
	a, b := []byte(found), []byte(wanted)
	if (netlink.Find(a, unix.NFTA_SET_FLAGS).Uint32()^netlink.Find(b, unix.NFTA_SET_FLAGS).Uint32())&form != 0 {
		return false
	}
	verdicts := func(attrs []byte) bool {
		return netlink.Find(attrs, unix.NFTA_SET_DATA_TYPE).Uint32() == unix.NFT_DATA_VERDICT
	}
	return netlink.Find(a, unix.NFTA_SET_KEY_LEN).Uint32() == netlink.Find(b, unix.NFTA_SET_KEY_LEN).Uint32() &&
		netlink.Find(a, unix.NFTA_SET_DATA_LEN).Uint32() == netlink.Find(b, unix.NFTA_SET_DATA_LEN).Uint32() &&
		verdicts(a) == verdicts(b)
}

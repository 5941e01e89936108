package nftables

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/nftables/wire"
	"github.com/sluice-proxy/sluice/internal/netlink"
	"github.com/sluice-proxy/sluice/service"
)

// withExchanges adds to a batch what the exchange of sets within it needs: the rules that
// refer to the sets, unless the batch brings them, and elements that the batch does not
// know of.
func (a *attempt) withExchanges(changes []dataplane.Change, sets []*exchange, there *users) []dataplane.Change {
	a.within = sets
	known := make(map[dataplane.ID]bool, len(changes))
	for i := range changes {
		known[changes[i].ID] = true
	}
	for _, x := range sets {
		if !fits(changes[x.number].Before.Body, x.wanted) {
			x.elements = nil // the batch brings its own
		}
		kept := 0
		for _, element := range x.elements {
			o := parseElement(containerOf(x.name), element)
			if !known[o.ID] {
				changes = append(changes, dataplane.Change{ID: o.ID, After: &o, Owner: service.Node})
				kept++
			}
		}
		x.elements = x.elements[:kept]
	}
	for _, name := range usersOf(sets) {
		id := chainID(name)
		if known[id] {
			continue
		}
		// Rules alone: the hook of a base chain stays.
		after := ownedObject(id, []byte(ruleBody(there.rules[name])))
		before := &dataplane.Object{ID: id}
		changes = append(changes, dataplane.Change{ID: id, Before: before, After: &after, Owner: service.Node})
	}
	return changes
}

// planTogether plans a batch that exchanges sets, in one transaction if it fits. Otherwise
// the batch builds the sets under other names, which its rules refer to, in the order of
// every large batch. bringHome then moves them to their own names.
func (a *attempt) planTogether(changes []dataplane.Change) *plan {
	room := a.socket.Room() / 2
	p := newPlan(a.w.d, changes, room, a.w.lateRelease())
	if len(p.parts) <= 1+p.late {
		return p
	}
	a.beside = a.within
	return newPlan(a.w.d, besideOf(changes, a.within), a.bytesMax(), a.w.lateRelease())
}

// besideOf returns a batch in which sets of other names replace the exchanged ones.
func besideOf(changes []dataplane.Change, sets []*exchange) []dataplane.Change {
	moved := make(map[string]string, len(sets))
	for _, x := range sets {
		moved[containerOf(x.name)] = elementsOf + x.name + besideSuffix
	}
	out := make([]dataplane.Change, 0, len(changes)+len(sets))
	for _, c := range changes {
		to, element := moved[c.ID.Container]
		switch {
		case element && c.After == nil:
			continue // goes with its set
		case element:
			id := dataplane.ID{Container: to, Name: c.ID.Name}
			after := &dataplane.Object{ID: id, Kind: dataplane.Element, Body: c.After.Body}
			c = dataplane.Change{ID: id, After: after, Owner: c.Owner}
		case c.ID.Container == containerSet && moved[containerOf(c.ID.Name)] != "":
			id := setID(c.ID.Name + besideSuffix)
			out = append(out, dataplane.Change{ID: id, After: &dataplane.Object{ID: id, Body: c.After.Body}, Owner: c.Owner})
			c.After = nil
		case c.ID.Container == containerChain && c.After != nil:
			after := ownedObject(c.ID, ledTo(c.After.Body, sets))
			c.After = &after
		}
		out = append(out, c)
	}
	return out
}

// ledTo returns the body of a chain whose rules refer to the sets of the other names.
func ledTo(body string, sets []*exchange) []byte {
	var out []byte
	for attr := range netlink.Attrs([]byte(body)) {
		data := attr.Data
		if attr.Type == bodyRule {
			for _, x := range sets {
				data = renameSet(data, x.name, x.name+besideSuffix)
			}
		}
		out = netlink.AppendBytes(out, attr.Type, data)
	}
	return out
}

// bringHome moves sets that were built under other names to their own ones.
func (a *attempt) bringHome(ctx context.Context) error {
	for _, x := range a.beside {
		name := x.name + besideSuffix
		there, err := a.reader.users(ctx)
		if err != nil {
			return err
		}
		after := dataplane.Object{ID: setID(name), Body: x.wanted}
		beside, err := a.reader.exchange(ctx, x.number, &dataplane.Change{ID: setID(name), After: &after}, there)
		if err != nil {
			return err
		}
		home := *beside
		home.name = x.name
		if err := a.fill(&home); err != nil {
			return err
		}
		if err := a.lead(beside, &home, name, there); err != nil {
			return err
		}
	}
	for _, x := range a.within {
		a.done(ctx, x)
	}
	return nil
}

// besideSuffix ends the name of a set that is built beside another one. No wanted set has
// such a name (a Service's begins with a hash of all of it), so an audit removes what a
// killed process left.
const besideSuffix = "-beside"

// exchangeBeside exchanges a set that does not fit into one transaction. It returns the set
// as refused if the kernel does not take the elements.
func (a *attempt) exchangeBeside(x *exchange, there *users) (refused []*exchange, err error) {
	beside := *x
	beside.name = x.name + besideSuffix
	if err := a.fill(&beside); err != nil {
		if r, ok := errors.AsType[*wire.Refusal](err); ok && r != nil {
			x.left, x.elements = x.left+len(x.elements), nil
			return []*exchange{x}, nil
		}
		return nil, err
	}
	if err := a.lead(x, &beside, x.name, there); err != nil {
		return nil, err
	}
	if err := a.fill(x); err != nil {
		return nil, err
	}
	return nil, a.lead(&beside, x, x.name, there)
}

// fill adds a set with its elements, in as many transactions as needed.
func (a *attempt) fill(x *exchange) error {
	elements, limit := x.elements, a.bytesMax()
	for first := true; first || len(elements) > 0; first = false {
		err := a.mustSend("build set "+x.name, func(e *emitter) {
			if first {
				e.addSet(x.name, x.wanted)
			}
			for full := false; len(elements) > 0 && !full; full = e.t.Bytes() >= limit {
				e.carry(elementsOf+x.name, elements[0], x.number)
				elements = elements[1:]
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// lead makes the rules that refer to one set refer to another one, and deletes the first.
// In the rules as they were read, the set has the name read.
func (a *attempt) lead(from, to *exchange, read string, there *users) error {
	return a.mustSend("move rules from set "+from.name+" to set "+to.name, func(e *emitter) {
		flushAll(e, from.users)
		e.deleteSet(from.name)
		for _, chain := range from.users {
			rules := make([][]byte, len(there.rules[chain]))
			for i, r := range there.rules[chain] {
				rules[i] = renameSet(r, read, to.name)
			}
			e.addRules(chain, ruleBody(rules))
		}
	})
}

// mustSend sends what the kernel should not refuse.
func (a *attempt) mustSend(what string, build func(*emitter)) error {
	refusals, err := a.send(build)
	if err == nil && len(refusals) > 0 {
		err = refusals[0]
	}
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// users lists the rules of the table and the sets that they refer to.
func (r *reader) users(ctx context.Context) (*users, error) {
	u := &users{rules: make(map[string][][]byte), of: make(map[string][]string)}
	err := r.rules(ctx, inTable(0, ""), func(chain string, body []byte) {
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

// setNames has the attribute of each expression that names a set.
var setNames = map[string]uint16{
	"lookup": unix.NFTA_LOOKUP_SET, "dynset": unix.NFTA_DYNSET_SET_NAME, "objref": unix.NFTA_OBJREF_SET_NAME,
}

// setsIn returns the sets that a rule refers to.
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

// renameSet returns a rule that refers to another set instead of one.
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

// ruleBody returns the body of a chain with these rules, without the chain's own attributes.
func ruleBody(rules [][]byte) string {
	var b []byte
	for _, r := range rules {
		b = netlink.AppendBytes(b, bodyRule, r)
	}
	return string(b)
}

// exchange reads the elements of a set that will be redefined.
func (r *reader) exchange(ctx context.Context, number int, c *dataplane.Change, there *users) (*exchange, error) {
	x := &exchange{name: c.ID.Name, number: number, wanted: c.After.Body, users: there.of[c.ID.Name]}
	timeout := uint64(0)
	err := r.ask(ctx, unix.NFT_MSG_GETSET, false, inTable(unix.NFTA_SET_NAME, x.name), func(b []byte) {
		timeout = netlink.Find(b, unix.NFTA_SET_TIMEOUT).Uint64()
	})
	if err != nil {
		return nil, goneMeanwhile(err)
	}
	room := sizeOf(x.wanted)
	err = r.elements(ctx, true, inTable(unix.NFTA_SET_ELEM_LIST_SET, x.name), func(element []byte) {
		kept := carried(element, timeout, x.wanted)
		if kept == nil || room > 0 && len(x.elements) >= room {
			x.left++
			return
		}
		x.elements = append(x.elements, kept)
		x.bytes += len(kept) + 4
	})
	if err != nil {
		return nil, goneMeanwhile(err)
	}
	for _, chain := range x.users {
		x.bytes += len(ruleBody(there.rules[chain]))
	}
	return x, nil
}

// Attributes of elements that package unix does not name.
const elementExpressions = 11 // NFTA_SET_ELEM_EXPRESSIONS, Linux 5.11

// carried returns an element as a set of another definition takes it, or nil if the wanted
// set would not have it: elements that expire do not belong in a set without timeouts, nor
// the reverse. timeout is that of the set that the element was in.
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

// sizeOf returns how many elements a set takes, or 0 for any number.
func sizeOf(definition string) int {
	description := netlink.Find([]byte(definition), unix.NFTA_SET_DESC).Data
	return int(netlink.Find(description, unix.NFTA_SET_DESC_SIZE).Uint32())
}

// fits reports whether elements of one definition fit another: their keys and data have the
// same form.
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

package nftables

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/nftables/wire"
	"github.com/sluice-proxy/sluice/internal/netlink"
	"github.com/sluice-proxy/sluice/service"
)

// withExchanges gives a batch to which everything is added that the exchange of sets
// within it needs: the rules that refer to them and that the batch does not bring, and
// elements that it does not know of.
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
		// Rules alone: what a base chain has besides stays.
		after := ownedObject(id, []byte(ruleBody(there.rules[name])))
		changes = append(changes, dataplane.Change{ID: id, Before: &dataplane.Object{ID: id}, After: &after, Owner: service.Node})
	}
	return changes
}

// planTogether plans a batch that exchanges sets: in one transaction where it fits.
// Where it does not, sets are built beside the old ones under other names, which the
// batch's rules are led to, in the order of every large batch. Afterwards they have to
// be brought home.
func (a *attempt) planTogether(changes []dataplane.Change) *plan {
	room := a.socket.Room() / 2
	p := newPlan(a.w.d, changes, room, a.w.lateRelease())
	late := 0
	if a.w.lateRelease() {
		late = 1
	}
	if len(p.parts) <= 1+late {
		return p
	}
	a.beside = a.within
	return newPlan(a.w.d, besideOf(changes, a.within), a.bytesMax(), a.w.lateRelease())
}

// besideOf gives a batch in which other sets take the place of those that are
// exchanged.
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
			c = dataplane.Change{ID: id, After: &dataplane.Object{ID: id, Kind: dataplane.Element, Body: c.After.Body}, Owner: c.Owner}
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

// ledTo gives the body of a chain whose rules ask the sets beside those that are
// exchanged.
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

// bringHome ends the exchange of sets within a batch.
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

// besideSuffix makes the name of a set that is built beside another one. No set that
// is wanted has such a name (a Service's begins with a hash of all of it), so an audit
// sweeps what a process leaves that was killed.
const besideSuffix = "-beside"

// exchangeBeside exchanges a set that does not fit into one transaction. The set is
// refused when the kernel does not take the elements.
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

// fill makes a set with its elements, in as many transactions as it takes.
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

// lead leads the rules that refer to one set to another one, and deletes the first. In
// the rules that were read, the set has the name read.
func (a *attempt) lead(from, to *exchange, read string, there *users) error {
	return a.mustSend("lead rules from set "+from.name+" to set "+to.name, func(e *emitter) {
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
		return fmt.Errorf("%s: %w", strings.TrimSpace(what), err)
	}
	return nil
}

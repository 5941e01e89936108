// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/internal/netlink"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/nftmodel"
)

// tamper lets another program change the kernel.
func (g *guard) tamper(change func() error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.tampered = true
	items := g.items()
	err := change()
	g.left = nil
	after, touched := g.items(), map[nftmodel.Name]bool{}
	for name, was := range items {
		if after[name] != was {
			g.altered[name] = after[name]
			touched[g.concerns(name, was)] = true
		}
	}
	for name, now := range after {
		if items[name] != now {
			touched[g.concerns(name, now)] = true
		}
	}
	for p, f := range g.fronts {
		before := f.share
		if f.dependsOn(touched) {
			g.look(f, p)
		}
		f.damaged = f.damaged || f.share < before || f.share == 0
	}
	return err
}

// part is the content of a part of a table; zero if there is no such part.
type part struct {
	there bool
	body  string
}

// concerns returns what packets have read that depend on a part: a base chain concerns all of
// them, and a range all that looked into its set.
func (g *guard) concerns(name nftmodel.Name, is part) nftmodel.Name {
	switch {
	case name.Chain != "" && netlink.Find([]byte(is.body), unix.NFTA_CHAIN_HOOK).Data != nil:
		return nftmodel.Name{Family: name.Family}
	case name.Key != "" && g.kernel.HoldsRanges(name):
		name.Key = ""
	}
	return name
}

// items returns the parts of the family's tables.
func (g *guard) items() map[nftmodel.Name]part {
	items := map[nftmodel.Name]part{}
	for _, item := range g.kernel.Items(g.family) {
		items[item.Name] = part{true, item.Body}
	}
	return items
}

// unrepaired returns what is still as another program has left it.
func (g *guard) unrepaired() map[nftmodel.Name]bool {
	if len(g.altered) == 0 {
		return nil
	}
	if g.left == nil {
		g.left = map[nftmodel.Name]bool{}
		for name := range g.altered {
			g.lookAt(name)
		}
	}
	return g.left
}

// lookAt notes whether an altered part is still as it was left.
func (g *guard) lookAt(name nftmodel.Name) {
	delete(g.left, name)
	left, altered := g.altered[name]
	if body, there := g.kernel.Item(name); altered && left == (part{there, body}) {
		g.left[name] = true
	}
}

// written looks at what a transaction has touched.
func (g *guard) written(touched map[nftmodel.Name]bool) {
	for name := range touched {
		if name.Chain == "" && name.Key == "" {
			g.left = nil // a set, or all
		}
	}
	if g.left != nil {
		for name := range touched {
			g.lookAt(name)
		}
	}
}

// damaged is unrepaired for those who do not hold the lock.
func (g *guard) damaged() map[nftmodel.Name]bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return maps.Clone(g.unrepaired())
}

// damaged returns what is as another program has left it, in this process's time or before.
func (s *stack) damaged() map[nftmodel.Name]bool {
	names := s.stillLeft()
	maps.Copy(names, s.guard.damaged())
	return names
}

// stillLeft returns what is as it was left when a process ended.
func (s *stack) stillLeft() map[nftmodel.Name]bool {
	names := map[nftmodel.Name]bool{}
	for name, left := range s.left {
		if body, there := s.kernel.Item(name); there && body == left {
			names[name] = true
		}
	}
	return names
}

// leave notes what is left damaged, under the names of whatever release has written it last,
// and the chains that it leads to, with their own sets: they stay as long as it does, as the
// last Service that wanted them had them.
func (s *stack) leave(damaged map[nftmodel.Name]bool) {
	items, noted := s.ours(func(nftmodel.Item) bool { return true }), map[nftmodel.Name]bool{}
	var named []nftmodel.Item                // what any part may lead to
	elements := map[string][]nftmodel.Item{} // what only its set leads to, by set: there are thousands
	for _, item := range items {
		switch {
		case isElement(item):
			elements[item.Set] = append(elements[item.Set], item)
		case isChain(item) || ofOnePort(item):
			named = append(named, item)
		}
	}
	var lead func(from nftmodel.Item)
	lead = func(from nftmodel.Item) {
		if noted[from.Name] {
			return
		}
		noted[from.Name], s.left[from.Name] = true, from.Body
		reach := named
		if isSet(from) {
			reach = slices.Concat(named, elements[from.Set])
		}
		for _, to := range reach {
			if leadsTo(from, to) {
				lead(to)
			}
		}
	}
	renamed := map[string]bool{}
	for name := range damaged {
		if name.Chain != "" {
			renamed[renamedChain(name.Chain)] = true
		}
	}
	for _, item := range items {
		if damaged[item.Name] || renamed[item.Chain] {
			lead(item)
		}
	}
}

// leadsTo reports whether a part names a chain or one port's own set, or is the set of an element.
func leadsTo(from, to nftmodel.Item) bool {
	switch {
	case isChain(to):
		return to.Chain != from.Chain && strings.Contains(from.Body, to.Chain+"\x00")
	case !ofOnePort(to):
		return false
	case isElement(to):
		return isSet(from) && from.Set == to.Set
	default:
		return isChain(from) && strings.Contains(from.Body, to.Set+"\x00")
	}
}

// ofOnePort reports whether a set or an element belongs to one service port: its name has that.
func ofOnePort(item nftmodel.Item) bool { return strings.Contains(item.Set, "/") }

// ledTo reports whether any part of the proxy's table leads to another.
func (s *stack) ledTo(to nftmodel.Item) bool {
	return len(s.ours(func(from nftmodel.Item) bool { return leadsTo(from, to) })) > 0
}

// ledByNameless reports whether an element that was left without a name leads to a part.
func (s *stack) ledByNameless(to nftmodel.Item, want contents) bool {
	return len(s.ours(func(from nftmodel.Item) bool {
		return isElement(from) && nameless(from) && want.leaves(from) && leadsTo(from, to)
	})) > 0
}

// nameless reports whether a part bears no Service's name: an element whose comment another
// program has taken, or what such an element may lead to.
func nameless(item nftmodel.Item) bool {
	return isChain(item) || ofOnePort(item) || isElement(item) && netlink.Find([]byte(item.Body), unix.NFTA_SET_ELEM_USERDATA).Data == nil
}

// misquarantined returns an error if a Service was quarantined in which the kernel has rejected nothing
// since the last check, and nothing else has gone wrong with the kernel.
func (g *guard) misquarantined(key service.Key) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.tampered || g.faults.hasStruck() {
		return nil
	}
	for n, states := range g.states {
		rejected := func(s state) bool {
			// What was rejected of a broken one before it broke is still the newest of it.
			return s.spec != nil && s.spec.Ports[0].Port >= rejectedPorts && s.spec.Ports[0].Port < defectsEnd
		}
		if keyOf(n) == key && !slices.ContainsFunc(states, rejected) {
			return fmt.Errorf("%v: Service %d was quarantined, and the kernel rejects nothing of it", g.family, n)
		}
	}
	return nil
}

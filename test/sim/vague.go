// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"

	nftrender "github.com/sluice-proxy/sluice/dataplane/nftables/render"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/nftmodel"
)

// If a process ends without a check, a Service may be between two states in the kernel. The next process completes the
// change, unless the Service is held back: then its parts in the kernel stay as they are, and the Service is vague.
// Each of these parts must belong to some announced state. The parts of other Services do not depend on this, and must
// be exact.

// isVague reports whether a Service is vague: its parts may belong to several states.
func (w *world) isVague(n int, family service.Family) bool {
	return w.vague[n] && w.cluster.heldBack(n, family)
}

// vagueNumbers returns the numbers of the vague Services.
func (w *world) vagueNumbers(family service.Family) []int {
	return slices.DeleteFunc(w.cluster.numbers(), func(n int) bool { return !w.isVague(n, family) })
}

// vagueIsDamaged reports whether a change by another program may await its repair although all seems settled: a part of
// a vague Service may be missing, or have the form of any release.
func (w *world) vagueIsDamaged() bool {
	for family, s := range w.stacks {
		for name := range s.guard.damaged() {
			if name.Table == nftrender.TableName && len(w.vagueNumbers(service.Family(family))) > 0 {
				return true
			}
		}
	}
	return false
}

// contents describes the valid contents of the proxy's table. The first of present lacks vague and inherited parts. A
// part that all of present contain must exist. Each part of the table must be in one of present, or in one of past: a
// previous state of a vague Service, with the facts of its time, in the form of either release. A part of a vague
// Service that was damaged when a process ended may also be in left, as another program left it: the next process
// cannot know its content before the damage.
type contents struct {
	present []func() items
	past    func(name nftmodel.Name, fits func(items) bool) bool
	// healthy is the expected table without Services that are held back.
	healthy func() items
	left    items
	// kept contains parts that Services which are held back may keep after they lost a frontend, for example chains to
	// which no rule or element leads.
	kept []func() items
	// announced reports whether a state since the last check, of the Service in a part's name, contains this part.
	announced func(nftmodel.Item) bool
}

// allows reports whether a part may be there with this content.
func (c contents) allows(name nftmodel.Name, body string) bool {
	damaged := c.leaves(nftmodel.Item{Name: name, Body: body})
	_, certain := c.present[0]()[name]
	fits := func(want items) bool {
		is, ok := want[name]
		return ok && (is == body || damaged && !certain)
	}
	among := func(want func() items) bool { return fits(want()) }
	return slices.ContainsFunc(c.present, among) || slices.ContainsFunc(c.kept, among) || c.past(name, fits)
}

// leaves reports whether a part is as it was left when a process ended. A part without a Service's name may then belong
// to any vague Service.
func (c contents) leaves(item nftmodel.Item) bool {
	body, ok := c.left[item.Name]
	return ok && body == item.Body
}

// needs reports whether a part has to be there.
func (c contents) needs(name nftmodel.Name) bool {
	return !slices.ContainsFunc(c.present, func(want func() items) bool { _, ok := want()[name]; return !ok })
}

// allowed returns the valid contents of the proxy's table with all certain Services and, of the vague ones, nothing or
// parts of announced states. Tables are computed when they are first used.
func (w *world) allowed(family service.Family, certain []served) (c contents) {
	lazily := func(all []served, as form) func() items {
		return sync.OnceValue(func() items {
			table, err := w.expectedItems(family, all, as)
			if err != nil {
				w.monitor.object(err)
			}
			return table
		})
	}
	add := func(all []served) { c.present = append(c.present, lazily(all, asRendered)) }
	add(certain)
	for i, s := range certain {
		for _, as := range w.inherited(family, s) {
			all := slices.Clone(certain)
			all[i] = as
			add(all)
		}
	}
	for i, s := range w.contest(family, certain) {
		if s.state.spec != certain[i].state.spec {
			c.kept = append(c.kept, lazily(certain[i:i+1], withoutFrontends))
		}
	}
	c.healthy = lazily(w.notHeldBack(family, certain), asRendered)
	if len(w.vagueNumbers(family)) > 0 {
		c.left = w.stacks[family].left
	}
	var all []served
	for _, n := range w.vagueNumbers(family) {
		for _, s := range w.cluster.histories[family][n] {
			if s.spec != nil {
				all = append(all, serve(n, s))
				add(append(slices.Clip(certain), serve(n, s)))
			}
		}
	}
	// A divided write of a rejected state may have applied those of its transactions that were not rejected.
	for _, n := range w.vagueNumbers(family) {
		for _, s := range w.cluster.rejected[family][n] {
			all = append(all, serve(n, s))
		}
	}
	c.past = w.anyPast(family, all)
	c.announced = func(item nftmodel.Item) bool { return len(c.left) > 0 && w.announced(family, item) }
	return c
}

// announced reports whether a state since the last check, of the Service in a part's name, contains this part.
func (w *world) announced(family service.Family, item nftmodel.Item) bool {
	for _, n := range w.cluster.numbers() {
		if !strings.Contains(item.Chain+item.Set, "-"+keyOf(n).String()+"/") {
			continue
		}
		for _, s := range slices.Concat(w.cluster.histories[family][n], w.cluster.rejected[family][n]) {
			if s.spec == nil {
				continue
			}
			for past := range w.pastItems(family, serve(n, s)) {
				if past[item.Name] == item.Body {
					return true
				}
			}
		}
	}
	return false
}

// onlyBegun reports whether a part is a chain of a vague Service without rules, to which chains lead, but no element:
// the process ended when a divided write had only created the chains. No packet reaches this chain.
func (s *stack) onlyBegun(item nftmodel.Item, want contents) bool {
	if !isChain(item) || item.Body != "" || !want.past(item.Name, func(past items) bool { _, is := past[item.Name]; return is }) {
		return false
	}
	from := s.ours(func(from nftmodel.Item) bool { return leadsTo(from, item) })
	return len(from) > 0 && !slices.ContainsFunc(from, isElement)
}

// ofHealthy reports whether a part is expected even without the Services that are held back.
func (c contents) ofHealthy(name nftmodel.Name) bool {
	_, ok := c.healthy()[name]
	return ok
}

// notHeldBack returns the Services that are not held back.
func (w *world) notHeldBack(family service.Family, all []served) []served {
	return slices.DeleteFunc(slices.Clone(all), func(s served) bool { return w.cluster.heldBack(s.n, family) })
}

// anyPast returns a function that reports whether the items of one of these states fit. It begins with the states that
// are likely to have the item, the newest first.
func (w *world) anyPast(family service.Family, all []served) func(nftmodel.Name, func(items) bool) bool {
	return func(name nftmodel.Name, fits func(items) bool) bool {
		for _, likely := range []bool{true, false} {
			for _, s := range slices.Backward(all) {
				if s.mayHave(family, name.Key) != likely {
					continue
				}
				for past := range w.pastItems(family, s) {
					if fits(past) {
						return true
					}
				}
			}
		}
		return false
	}
}

// mayHave reports whether the key of an element contains the address or the port of a frontend.
func (s served) mayHave(family service.Family, key string) (may bool) {
	s.state.spec.Claims(func(in service.Family, f service.Frontend, _ service.FrontendKind) {
		part := string(f.Addr.AsSlice())
		if !f.Addr.IsValid() {
			part = string(binary.BigEndian.AppendUint16(nil, f.Port))
		}
		may = may || in == family && strings.Contains(key, part)
	})
	return may
}

// pastItems yields the items of a kernel with only this state, for the facts of each time, the newest first, because
// shared chains may be as of any time, and in the form of either release.
func (w *world) pastItems(family service.Family, s served) iter.Seq[items] {
	return func(yield func(items) bool) {
		seen := map[uint64]bool{}
		for _, s.state.facts = range slices.Backward(w.cluster.former) {
			f := w.fragment(family, w.contest(family, []served{s})[0])
			if seen[f.Digest] {
				continue
			}
			seen[f.Digest] = true
			for _, as := range []form{asRendered, ofOtherRelease} {
				past, err := w.layer(family, f, as)
				if err != nil {
					w.monitor.object(err)
				}
				if !yield(past.all) {
					return
				}
			}
		}
	}
}

// concernsVague reports whether a vague Service answers at a packet's destination, or did. The current rules of the
// node decide on which addresses its node ports answer.
func (w *world) concernsVague(family service.Family, p nftmodel.Packet) bool {
	facts := w.cluster.facts()
	for _, n := range w.vagueNumbers(family) {
		for _, s := range append(slices.Clip(w.cluster.histories[family][n]), w.cluster.state(n)) {
			j := newJudge(family, facts, w.cluster.hosts, []served{serve(n, s)})
			if len(j.claimants(p)) > 0 || j.isClusterIP(p.Dst.Addr()) {
				return true
			}
		}
	}
	return false
}

// compare returns an error that names every wrong, unexpected or missing part of the proxy's table, and every part of
// other programs that was changed.
func (s *stack) compare(want contents) error {
	var errs []error
	wrong := func(name nftmodel.Name, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%v: %s", name, fmt.Sprintf(format, args...)))
	}
	seen, present := map[nftmodel.Name]bool{}, want.present[0]()
	for _, item := range s.kernel.Items(s.family) {
		seen[item.Name] = true
		body, wanted := present[item.Name]
		foreign, theirs := s.foreign[item.Name]
		switch {
		case item.Table != nftrender.TableName && !theirs:
			wrong(item.Name, "the proxy has put this into another program's table")
		case theirs && item.Body != foreign:
			wrong(item.Name, "another program's is\n\t%q, was\n\t%q", item.Body, foreign)
		case theirs, !wanted && s.remains && item.Set == hairpins, want.allows(item.Name, item.Body):
		case !wanted && nameless(item) && want.leaves(item) && (isElement(item) && !ofOnePort(item) || s.ledTo(item)):
		case !wanted && !isElement(item) && s.ledByNameless(item, want) && want.announced(item):
		case !wanted && s.onlyBegun(item, want):
		case !wanted:
			wrong(item.Name, "is not wanted")
		default:
			wrong(item.Name, "is\n\t%q, want\n\t%q", item.Body, body)
		}
	}
	for name := range present {
		if !seen[name] && want.needs(name) && !(s.remains && name.Set == hairpins && !want.ofHealthy(name)) {
			wrong(name, "is missing")
		}
	}
	for name := range s.foreign {
		if !seen[name] {
			wrong(name, "another program's is gone")
		}
	}
	return errors.Join(errs...)
}

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

// A process that ends without a check leaves a Service between two states. The next one
// finishes that, unless the Service is held back: then what the kernel has of it stays, and
// only its parts are known. Each must be one that some announced state wants. What others
// have does not depend on that, and must be exact.

// isVague reports whether only the parts of a Service are known.
func (w *world) isVague(n int, family service.Family) bool {
	return w.vague[n] && w.cluster.heldBack(n, family)
}

// vagueNumbers returns those of which only the parts are known.
func (w *world) vagueNumbers(family service.Family) []int {
	return slices.DeleteFunc(w.cluster.numbers(), func(n int) bool { return !w.isVague(n, family) })
}

// vagueIsDamaged reports whether another program's change may await its repair although all
// seems settled: a part of a vague Service may be missing, or be as any release has written it.
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

// contents is what the proxy's table may be. Of present, the first is without what is vague or
// inherited; what all of them have has to be there. Each part has to be in one of them, or in one of
// past: what a vague Service had, with the facts of its time, in the form of another release.
// A part of a vague Service that was damaged when a process ended may also be in left, as
// another program has left it: the next process has not known what was there before.
type contents struct {
	present []func() items
	past    func(name nftmodel.Name, fits func(items) bool) bool
	// healthy has what is wanted without what is held back.
	healthy func() items
	left    items
	// kept has what Services that are held back keep of frontends that they have lost: chains to which
	// nothing leads any more, for example. It may be there.
	kept []func() items
	// announced reports whether the Service in a part's name has wanted it so since the last check.
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

// leaves reports whether a part is as it was left when a process ended. What bears no name
// may then be of any vague Service.
func (c contents) leaves(item nftmodel.Item) bool {
	body, ok := c.left[item.Name]
	return ok && body == item.Body
}

// needs reports whether a part has to be there.
func (c contents) needs(name nftmodel.Name) bool {
	return !slices.ContainsFunc(c.present, func(want func() items) bool { _, ok := want()[name]; return !ok })
}

// allowed returns what the proxy's table may be with all of these and, of the vague ones,
// nothing or parts of what was announced. It computes what is asked for.
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
	// Of a rejected state, the transactions of a divided write have landed that were not rejected.
	for _, n := range w.vagueNumbers(family) {
		for _, s := range w.cluster.rejected[family][n] {
			all = append(all, serve(n, s))
		}
	}
	c.past = w.anyPast(family, all)
	c.announced = func(item nftmodel.Item) bool { return len(c.left) > 0 && w.announced(family, item) }
	return c
}

// announced reports whether the Service in a part's name has wanted it so since the last check.
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

// onlyBegun reports whether a part is a chain of a vague Service that has no rules yet and that chains lead to, and no
// element: of a divided write, what makes the chains has landed before the process ended, and no packet comes there.
func (s *stack) onlyBegun(item nftmodel.Item, want contents) bool {
	if !isChain(item) || item.Body != "" || !want.past(item.Name, func(past items) bool { _, is := past[item.Name]; return is }) {
		return false
	}
	from := s.ours(func(from nftmodel.Item) bool { return leadsTo(from, item) })
	return len(from) > 0 && !slices.ContainsFunc(from, isElement)
}

// ofHealthy reports whether a part is wanted also without what is held back.
func (c contents) ofHealthy(name nftmodel.Name) bool {
	_, ok := c.healthy()[name]
	return ok
}

// notHeldBack returns those of which nothing is held back.
func (w *world) notHeldBack(family service.Family, all []served) []served {
	return slices.DeleteFunc(slices.Clone(all), func(s served) bool { return w.cluster.heldBack(s.n, family) })
}

// anyPast returns a function that reports whether the items of one of these states fit. It begins with those
// that are likely to have the item, the newest first.
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

// pastItems yields what a kernel has that only this state was written to, with the facts of any time, the
// newest first, which shared chains have had, and in either release's form.
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

// concernsVague reports whether a packet goes to where a vague Service answers, or did. On which
// addresses its node ports answer is decided by the node's own rules, which are those of today.
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

// compare returns an error that names every part of the tables in which the kernel is not
// what is expected, and everything of other programs that was changed.
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

package sim

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"

	"github.com/sluice-proxy/sluice/dataplane"
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
	present []map[nftmodel.Name]string
	past    func(name nftmodel.Name, fits func(map[nftmodel.Name]string) bool) bool
	// healthy has what is wanted without what is held back.
	healthy func() map[nftmodel.Name]string
	left    map[nftmodel.Name]string
	// kept has what Services that are held back keep of frontends that they have lost: chains to which
	// nothing leads any more, for example. It may be there.
	kept []map[nftmodel.Name]string
	// announced reports whether the Service in a part's name has wanted it so since the last check.
	announced func(nftmodel.Item) bool
}

// allows reports whether a part may be there with this content.
func (c contents) allows(name nftmodel.Name, body string) bool {
	damaged := c.leaves(nftmodel.Item{Name: name, Body: body})
	_, certain := c.present[0][name]
	fits := func(want map[nftmodel.Name]string) bool {
		is, ok := want[name]
		return ok && (is == body || damaged && !certain)
	}
	return slices.ContainsFunc(c.present, fits) || slices.ContainsFunc(c.kept, fits) || c.past(name, fits)
}

// leaves reports whether a part is as it was left when a process ended. What bears no name
// may then be of any vague Service.
func (c contents) leaves(item nftmodel.Item) bool {
	body, ok := c.left[item.Name]
	return ok && body == item.Body
}

// needs reports whether a part has to be there.
func (c contents) needs(name nftmodel.Name) bool {
	return !slices.ContainsFunc(c.present, func(want map[nftmodel.Name]string) bool { _, ok := want[name]; return !ok })
}

// allowed returns what the proxy's table may be with all of these and, of the vague ones,
// nothing or parts of what was announced.
func (w *world) allowed(family service.Family, certain []served) (c contents, err error) {
	add := func(all []served) {
		items, wrong := w.expectedItems(family, all, nil)
		c.present, err = append(c.present, items), errors.Join(err, wrong)
	}
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
			items, wrong := w.expectedItems(family, certain[i:i+1], withoutFrontends)
			c.kept, err = append(c.kept, items), errors.Join(err, wrong)
		}
	}
	c.healthy = sync.OnceValue(func() map[nftmodel.Name]string {
		items, wrong := w.expectedItems(family, w.notHeldBack(family, certain), nil)
		if wrong != nil {
			w.monitor.object(wrong)
		}
		return items
	})
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
	return c, err
}

// withoutFrontends leaves out what belongs to a frontend.
func withoutFrontends(objects []dataplane.Object) []dataplane.Object {
	return slices.DeleteFunc(objects, func(o dataplane.Object) bool {
		_, is := nftrender.Naming{}.Frontend(o.ID)
		return is
	})
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
func (w *world) anyPast(family service.Family, all []served) func(nftmodel.Name, func(map[nftmodel.Name]string) bool) bool {
	return func(name nftmodel.Name, fits func(map[nftmodel.Name]string) bool) bool {
		for _, likely := range []bool{true, false} {
			for _, s := range slices.Backward(all) {
				if s.mayHave(family, name.Key) != likely {
					continue
				}
				for items := range w.pastItems(family, s) {
					if fits(items) {
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
	s.state.spec.Claims(func(in service.Family, f service.Frontend, _ service.ClaimKind) {
		part := string(f.Addr.AsSlice())
		if !f.Addr.IsValid() {
			part = string(binary.BigEndian.AppendUint16(nil, f.Port))
		}
		may = may || in == family && strings.Contains(key, part)
	})
	return may
}

// pastKey is what the objects of a past state are rendered from.
type pastKey struct {
	family  service.Family
	n       int
	spec    *service.Spec
	slices  **service.Slice // the first
	was, as *service.NodeFacts
}

// pastItems identifies what a kernel has of a past state, besides the facts of today.
type pastItems struct {
	family     service.Family
	digest     uint64 // of the rendered objects
	translated bool
}

// pastMemory has the items of past states, many of which are rendered alike. A check asks for the same
// ones each time until all is settled.
type pastMemory struct {
	facts   *service.NodeFacts
	digests map[pastKey]uint64
	items   map[pastItems]map[nftmodel.Name]string
}

// pastItems yields what a kernel has that only this state was written to, with the facts of any time, the
// newest first, which shared chains have had, and in either release's form. It computes what is asked for: that
// takes long.
func (w *world) pastItems(family service.Family, s served) iter.Seq[map[nftmodel.Name]string] {
	m := &w.past
	if now := w.cluster.facts(); m.facts == nil || !m.facts.Equal(now) {
		*m = pastMemory{now, map[pastKey]uint64{}, map[pastItems]map[nftmodel.Name]string{}}
	}
	key := pastKey{family: family, n: s.n, spec: s.state.spec, was: s.state.facts}
	if len(s.state.slices) > 0 {
		key.slices = &s.state.slices[0]
	}
	render := nftrender.NewRenderer(family, w.settings.options)
	return func(yield func(map[nftmodel.Name]string) bool) {
		seen := map[uint64]bool{}
		for _, key.as = range slices.Backward(w.cluster.former) {
			s.state.facts = key.as
			digest, known := m.digests[key]
			if !known {
				as := w.contest(family, []served{s})[0]
				digest = dataplane.NewFragment(keyOf(s.n), render.Service(context.Background(), &as.view, key.as)).Digest
				m.digests[key] = digest
			}
			if seen[digest] {
				continue
			}
			seen[digest] = true
			for _, id := range []pastItems{{family, digest, false}, {family, digest, true}} {
				if m.items[id] == nil {
					m.items[id] = w.computePast(id, s)
				}
				if !yield(m.items[id]) {
					return
				}
			}
		}
	}
}

// computePast returns the items of a state in the form of this release, or of the other one.
func (w *world) computePast(id pastItems, s served) map[nftmodel.Name]string {
	var translate func([]dataplane.Object) []dataplane.Object
	if id.translated {
		translate = translated
	}
	items, err := w.expectedItems(id.family, []served{s}, translate)
	if err != nil {
		w.monitor.object(err)
	}
	return items
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
	seen := map[nftmodel.Name]bool{}
	for _, item := range s.kernel.Items(s.family) {
		seen[item.Name] = true
		body, wanted := want.present[0][item.Name]
		foreign, theirs := s.foreign[item.Name]
		switch {
		case item.Table != nftrender.TableName && !theirs:
			wrong(item.Name, "the proxy has put this into another program's table")
		case theirs && item.Body != foreign:
			wrong(item.Name, "another program's is\n\t%q, was\n\t%q", item.Body, foreign)
		case theirs, !wanted && s.remains && item.Set == hairpins, want.allows(item.Name, item.Body):
		case !wanted && nameless(item) && want.leaves(item) && (isElement(item) && !ofOnePort(item) || s.ledTo(item)):
		case !wanted && !isElement(item) && s.ledByNameless(item, want) && want.announced(item):
		case !wanted:
			wrong(item.Name, "is not wanted")
		default:
			wrong(item.Name, "is\n\t%q, want\n\t%q", item.Body, body)
		}
	}
	for name := range want.present[0] {
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

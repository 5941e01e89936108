// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"slices"
	"strings"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// claim is one Service's request for one object. There is one for every object of every
// Service, so it refers to its account by a pointer.
type claim struct {
	by     *account
	object *dataplane.Object
}

// claims are the claims for one object. Nearly always there is exactly one, sole. An object of a frontend never has
// more, because one Service has the frontend.
//
// Invariant: while shared is set, sole.object is the wanted content, and sole.by is nil if the account that brought
// this content has withdrawn it. Once the last claim is withdrawn, sole keeps its account, without an object: the
// removal belongs to that account.
type claims struct {
	sole   claim
	shared *shared
}

// shared counts the claims of Services for an object that belongs to none of them, such as a chain of node facts. All
// claim the same content, except while facts change. Then the latest content wins. The claims of Services that keep
// their previous objects rank below the others.
type shared struct {
	total int
	// last is the account that withdrew what had been wanted; nil for none.
	last *account
	// keeper claims the objects to which the wanted content leads, while the content itself has no claim: the Services
	// that still want the object keep other content (keep). It is nil for none.
	keeper *account
	// contents are in the order in which they came.
	contents []content
}

// content is one of the contents that are claimed.
type content struct {
	object *dataplane.Object
	// live counts the claims by newest fragments of Services, and kept the other claims.
	live, kept int
	// node is set if the scaffold claims this content, and so wins.
	node bool
}

func (c *content) count(kept bool) *int {
	if kept {
		return &c.kept
	}
	return &c.live
}

func (cs *claims) len() int {
	switch {
	case cs.shared != nil:
		return cs.shared.total
	case cs.sole.object != nil:
		return 1
	default:
		return 0
	}
}

// winner returns the wanted claim; nil if there is none. The account of a shared object may be unknown: then it is nil.
func (cs *claims) winner() *claim {
	if cs.sole.object == nil {
		return nil
	}
	return &cs.sole
}

// last returns the account that withdrew the last claim; nil if there is a claim, or
// never was one.
func (cs *claims) last() *account {
	if cs.sole.object == nil {
		return cs.sole.by
	}
	return nil
}

// sharedWith reports whether other accounts than this one claim the object.
func (cs *claims) sharedWith(a *account) bool {
	return cs.len() > 1 || cs.len() == 1 && cs.sole.by != a
}

// add makes a claim. known is what the kernel has.
func (cs *claims) add(c claim, known *dataplane.Object) {
	if cs.shared == nil && (cs.sole.object == nil || cs.sole.by == c.by) {
		cs.sole = c
		return
	}
	if cs.shared == nil {
		cs.shared = &shared{}
		cs.shared.add(cs.sole)
	}
	cs.shared.add(c)
	cs.elect(c, known)
}

// replace changes the claim of an account.
func (cs *claims) replace(c claim, was *dataplane.Object, kept bool, known *dataplane.Object) {
	if cs.shared == nil {
		cs.sole = c
		return
	}
	cs.shared.remove(c.by, was, kept)
	cs.shared.add(c)
	cs.elect(c, known)
}

// drop withdraws the claim of an account for an object of this content.
func (cs *claims) drop(a *account, object *dataplane.Object, kept bool, known *dataplane.Object) {
	if cs.shared == nil {
		if cs.sole.by == a {
			cs.sole.object = nil
		}
		return
	}
	cs.shared.remove(a, object, kept)
	if cs.shared.total == 0 {
		cs.sole, cs.shared = claim{by: a}, nil
		return
	}
	cs.elect(claim{by: a}, known)
}

// elect decides which content is wanted, after an account has changed its claim to c. If the account has withdrawn its
// claim, c has no object.
func (cs *claims) elect(c claim, known *dataplane.Object) {
	object := cs.shared.elect(cs.sole.object, known)
	changed := !dataplane.Same(object, cs.sole.object)
	switch brings := c.object != nil && dataplane.Same(c.object, object); {
	case brings && (changed || cs.sole.by == nil):
		cs.sole.by = c.by
	case !brings && cs.sole.by != nil && (changed || cs.sole.by == c.by):
		cs.sole.by, cs.shared.last = nil, cs.sole.by
	}
	cs.sole.object = object
	cs.shared.contents = slices.DeleteFunc(cs.shared.contents, func(c content) bool { return c.live+c.kept == 0 && c.object != object })
}

func (s *shared) find(object *dataplane.Object) int {
	return slices.IndexFunc(s.contents, func(c content) bool { return dataplane.Same(c.object, object) })
}

func (s *shared) add(c claim) {
	at := s.find(c.object)
	if at < 0 {
		// The content outlives the fragment, and must not keep the fragment's text in memory.
		o := *c.object
		o.ID.Name, o.Body = strings.Clone(o.ID.Name), strings.Clone(o.Body)
		at = len(s.contents)
		s.contents = append(s.contents, content{object: &o})
	}
	s.total++
	*s.contents[at].count(c.by.keeps())++
	s.contents[at].node = s.contents[at].node || c.by.key == service.Node
}

func (s *shared) remove(a *account, object *dataplane.Object, kept bool) {
	c := &s.contents[s.find(object)]
	s.total--
	*c.count(kept)--
	c.node = c.node && a.key != service.Node
}

// elect returns the content that is wanted from now on. If all claims are kept ones, the content that serves the
// Services stays: the content that they claim may have been damaged before.
func (s *shared) elect(wanted, known *dataplane.Object) *dataplane.Object {
	best := -1
	rank := func(c *content) int {
		switch {
		case c.live > 0 && c.node:
			return 4
		case c.live > 0:
			return 3
		case dataplane.Same(c.object, wanted) && (s.keeper != nil || dataplane.Same(c.object, known)):
			return 2
		case c.kept > 0:
			return 1
		default:
			return 0
		}
	}
	for i := range s.contents {
		if best < 0 || rank(&s.contents[i]) >= rank(&s.contents[best]) {
			best = i
		}
	}
	return s.contents[best].object
}

// orphaned reports whether the content that is wanted has no claim.
func (cs *claims) orphaned() bool {
	if cs.shared == nil {
		return false
	}
	c := &cs.shared.contents[cs.shared.find(cs.sole.object)]
	return c.live+c.kept == 0
}

// keep creates keepers for contents that were orphaned since the last call, and dismisses keepers that are not needed
// any more.
func (l *Ledger) keep() {
	for len(l.orphans) > 0 || len(l.dismissed) > 0 {
		orphans, dismissed := l.orphans, l.dismissed
		l.orphans, l.dismissed = nil, nil
		for _, e := range orphans {
			s := e.claims.shared
			switch orphaned := e.claims.orphaned(); {
			case orphaned && s.keeper == nil:
				s.keeper = &account{key: e.owner()}
				l.fold(s.keeper, dataplane.NewFragment(s.keeper.key, l.ledTo(nil, e.claims.sole.object)), found)
			case !orphaned && s != nil && s.keeper != nil:
				dismissed, s.keeper = append(dismissed, s.keeper), nil
			}
		}
		for _, keeper := range dismissed {
			l.fold(keeper, nil, found)
		}
	}
}

// ledTo appends the objects to which an object leads: as others want them, or else as the kernel has them.
func (l *Ledger) ledTo(all []dataplane.Object, o *dataplane.Object) []dataplane.Object {
	for _, ref := range refsOf(o, l.origin) {
		l.steps++
		e := l.entries.get(ref)
		if e == nil || slices.ContainsFunc(all, func(o dataplane.Object) bool { return o.ID == ref }) {
			continue
		}
		to := e.known
		if winner := e.claims.winner(); winner != nil {
			to = winner.object
		} else if e.unsure {
			continue
		}
		if to != nil && to.Kind != dataplane.Element {
			all = l.ledTo(append(all, *to), to)
		}
	}
	return all
}

// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"strings"

	"github.com/sluice-proxy/sluice/dataplane"
)

// claim is one Service's request for one object. There is one for every object of every
// Service, so it refers to its account by a pointer.
type claim struct {
	by     *account
	object *dataplane.Object
}

// claims are the claims for one object. Nearly always there is exactly one, sole. An object of a frontend never has
// more, because one Service has the frontend. The name of a shared object determines its content. So all rendered ones
// are equal, and their claims are a count. Only an object that was found in the kernel may differ. It yields to a
// rendered one.
//
// Invariant: while shared is set, sole.object is the wanted content, and sole.by is nil if the account that brought
// this content has withdrawn it. Once the last claim is withdrawn, sole keeps its account, without an object: the
// removal belongs to that account.
type claims struct {
	sole   claim
	shared *shared
}

// shared counts the claims of Services for an object that belongs to none of them, such as a class chain.
type shared struct {
	total int
	// last is the account that brought the object and has withdrawn; nil for none.
	last *account
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

// add makes a claim.
func (cs *claims) add(c claim) {
	if cs.shared == nil && (cs.sole.object == nil || cs.sole.by == c.by) {
		cs.sole = c
		return
	}
	if cs.shared == nil {
		cs.shared = &shared{total: 1}
		cs.sole.object = lasting(cs.sole.object)
	}
	cs.shared.total++
	cs.replace(c)
}

// replace changes the claim of an account.
func (cs *claims) replace(c claim) {
	switch {
	case cs.shared == nil:
		cs.sole = c
	case !dataplane.Same(c.object, cs.sole.object):
		if !c.by.keeps() {
			cs.sole = claim{c.by, lasting(c.object)}
		}
	case cs.sole.by == nil:
		cs.sole.by = c.by
	}
}

// drop withdraws the claim of an account.
func (cs *claims) drop(a *account) {
	switch {
	case cs.shared == nil:
		if cs.sole.by == a {
			cs.sole.object = nil
		}
	case cs.shared.total == 1:
		cs.sole, cs.shared = claim{by: a}, nil
	default:
		cs.shared.total--
		if cs.sole.by == a {
			cs.sole.by, cs.shared.last = nil, a
		}
	}
}

// lasting returns a copy of an object. The copy outlives the fragment, and must not keep the fragment's text in memory.
func lasting(o *dataplane.Object) *dataplane.Object {
	own := *o
	own.ID.Name, own.Body = strings.Clone(o.ID.Name), strings.Clone(o.Body)
	return &own
}

// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"maps"
	"slices"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// Owner returns the Service that has a frontend according to the API (source.Cache.Owner). It must not block.
type Owner func(service.Frontend) (service.Key, bool)

// frontends records who claims the objects of each frontend. One account claims all of them, so endpoints and source
// ranges of two Services never mix. Services are admitted to frontends before they are rendered. Two meet here only
// while one has not given up a frontend that it lost: its actor is late, or the account keeps its previous objects
// because it is held or was found in the kernel.
type frontends struct {
	owner   Owner
	tenures map[service.Frontend]tenure
	// losers has the accounts that want a frontend that another account has; they do not claim its objects.
	losers map[service.Frontend][]*account
	// freed has the frontends that lost their last claim since the last review.
	freed []service.Frontend
	// index has the objects of fragments by their frontends, until the end of a review, because a Service may lose
	// thousands of frontends together.
	index map[*dataplane.Fragment]map[service.Frontend][]*dataplane.Object
}

// tenure is who claims the objects of a frontend, and how many.
type tenure struct {
	by      *account
	objects int
}

// outranks reports whether an account gets a frontend that another one claims. Of two accounts that keep their previous
// objects, the one whose objects the kernel has gets it.
func (l *Ledger) outranks(a, other *account, f service.Frontend) bool {
	switch owner, known := l.frontends.owner(f); {
	case known && owner == a.key:
		return true
	case known && owner == other.key:
		return false
	}
	if a.keeps() != other.keeps() {
		return other.keeps()
	}
	if a.keeps() {
		if mine, theirs := l.there(a, f), l.there(other, f); mine != theirs {
			return mine
		}
	}
	return a.key.Compare(other.key) < 0
}

// there reports whether the kernel has the objects of an account at a frontend.
func (l *Ledger) there(a *account, f service.Frontend) bool {
	objects := l.at(a, f)
	return len(objects) > 0 && !slices.ContainsFunc(objects, func(o *dataplane.Object) bool {
		l.steps++
		e := l.entries.get(o.ID)
		return e == nil || !dataplane.Same(e.known, o)
	})
}

// enter makes room for one more claim of an account at a frontend. It reports false if another account has the
// frontend. An account that lost the frontend gets all of it back, or nothing (review).
func (l *Ledger) enter(a *account, f service.Frontend) bool {
	s := &l.frontends
	if _, lost := a.lost[f]; lost {
		return false
	}
	t := s.tenures[f]
	if t.by != nil && t.by != a {
		if !l.outranks(a, t.by, f) {
			s.lose(a, f)
			return false
		}
		l.evict(t.by, f)
		t = tenure{}
	}
	s.tenures[f] = tenure{a, t.objects + 1}
	return true
}

// leave takes one claim of an account at a frontend back. It reports false if there was none.
func (l *Ledger) leave(a *account, f service.Frontend) bool {
	s := &l.frontends
	t := s.tenures[f]
	if t.by != a {
		return false
	}
	if t.objects--; t.objects == 0 {
		delete(s.tenures, f)
		s.freed = append(s.freed, f)
		return true
	}
	s.tenures[f] = t
	return true
}

// evict withdraws all claims of an account at a frontend.
func (l *Ledger) evict(a *account, f service.Frontend) {
	delete(l.frontends.tenures, f)
	for _, object := range l.at(a, f) {
		l.steps++
		l.drop(a, object)
	}
	l.frontends.lose(a, f)
}

// admit makes the claims of an account at a free frontend.
func (l *Ledger) admit(a *account, f service.Frontend) {
	l.frontends.find(a, f)
	for _, object := range l.at(a, f) {
		l.steps++
		l.claim(a, object)
	}
}

// at returns the objects of an account at a frontend.
func (l *Ledger) at(a *account, f service.Frontend) []*dataplane.Object {
	s := &l.frontends
	index := s.index[a.folded]
	if index == nil {
		index = map[service.Frontend][]*dataplane.Object{}
		objects := objectsOf(a.folded)
		for i := range objects {
			l.steps++
			if at, ok := l.naming.Frontend(objects[i].ID); ok {
				index[at] = append(index[at], &objects[i])
			}
		}
		if s.index == nil {
			s.index = map[*dataplane.Fragment]map[service.Frontend][]*dataplane.Object{}
		}
		s.index[a.folded] = index
	}
	return index[f]
}

// lose notes that an account wants a frontend that another one has.
func (s *frontends) lose(a *account, f service.Frontend) {
	if _, known := a.lost[f]; known {
		return
	}
	if s.losers == nil {
		s.losers = map[service.Frontend][]*account{}
	}
	if a.lost == nil {
		a.lost = map[service.Frontend]struct{}{}
	}
	s.losers[f], a.lost[f] = append(s.losers[f], a), struct{}{}
}

// find reverts lose.
func (s *frontends) find(a *account, f service.Frontend) {
	others := slices.DeleteFunc(s.losers[f], func(o *account) bool { return o == a })
	if s.losers[f] = others; len(others) == 0 {
		delete(s.losers, f)
	}
	if delete(a.lost, f); len(a.lost) == 0 {
		a.lost = nil
	}
}

// lacks reports whether an account makes no claim for one of its objects, because another account has
// the frontend.
func (l *Ledger) lacks(a *account, id dataplane.ID) bool {
	if a.lost == nil {
		return false
	}
	f, _ := l.naming.Frontend(id)
	_, lost := a.lost[f]
	return lost
}

// review decides again about the frontends that an account lost, and about those without a claim.
func (l *Ledger) review(a *account) {
	s := &l.frontends
	for f := range maps.Clone(a.lost) {
		switch t := s.tenures[f]; {
		case len(l.at(a, f)) == 0:
			s.find(a, f)
		case t.by == nil:
			l.admit(a, f)
		case l.outranks(a, t.by, f):
			l.evict(t.by, f)
			l.admit(a, f)
		}
	}
	freed := s.freed
	s.freed = nil
	for _, f := range freed {
		if losers := s.losers[f]; s.tenures[f].by == nil && len(losers) > 0 {
			best := losers[0]
			for _, o := range losers[1:] {
				if l.outranks(o, best, f) {
					best = o
				}
			}
			l.admit(best, f)
		}
	}
	s.freed, s.index = freed[:0], nil
}

package ledger

import (
	"cmp"
	"slices"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// Shadow says that a Service's claim for a frontend lost against another one's, or
// that it lost before and does so no longer.
type Shadow struct {
	// Key lost; By serves the frontend, or did until now when Over is set.
	Key, By  service.Key
	Frontend dataplane.Frontend
	Over     bool
}

// shadowKey identifies a frontend that a Service does not get.
type shadowKey struct {
	loser    service.Key
	frontend dataplane.Frontend
}

// shadowState is what is known of a shadowed frontend, and what has been told.
type shadowState struct {
	// objects counts the loser's objects of this frontend that lost; by is who
	// won the last of them.
	objects int
	by      service.Key
	// told and toldBy are what the owner of the ledger knows.
	told   bool
	toldBy service.Key
	// listed is set while the key is among those to look at.
	listed bool
}

// shadows finds out who is shadowed, from what changes at contested objects alone:
// as long as no two Services want one frontend it holds nothing and costs nothing.
//
// Invariant: a state is kept exactly while it has objects or is listed; count is
// the number of states with objects.
type shadows struct {
	states  map[shadowKey]*shadowState
	changed []shadowKey
	count   int
}

// lose notes that one more object of the loser's frontend is somebody else's.
func (s *shadows) lose(loser, by service.Key, f dataplane.Frontend) {
	key := shadowKey{loser, f}
	state := s.states[key]
	if state == nil {
		state = &shadowState{}
		if s.states == nil {
			s.states = map[shadowKey]*shadowState{}
		}
		s.states[key] = state
	}
	if state.objects++; state.objects == 1 {
		s.count++
	}
	state.by = by
	s.list(key, state)
}

// regain takes back one lose.
func (s *shadows) regain(loser service.Key, f dataplane.Frontend) {
	key := shadowKey{loser, f}
	state := s.states[key]
	if state.objects--; state.objects == 0 {
		s.count--
	}
	s.list(key, state)
}

// pass notes that who wins against the loser is another one now.
func (s *shadows) pass(loser, by service.Key, f dataplane.Frontend) {
	key := shadowKey{loser, f}
	state := s.states[key]
	state.by = by
	s.list(key, state)
}

func (s *shadows) list(key shadowKey, state *shadowState) {
	if !state.listed {
		state.listed = true
		s.changed = append(s.changed, key)
	}
}

// take gives what differs from what has been told, in the order of keys (so that
// what is between the same two is together), and takes it as told.
func (s *shadows) take() []Shadow {
	var news []Shadow
	for _, key := range s.changed {
		state := s.states[key]
		state.listed = false
		lost := state.objects > 0
		switch {
		case lost && (!state.told || state.toldBy != state.by):
			news = append(news, Shadow{Key: key.loser, By: state.by, Frontend: key.frontend})
			state.told, state.toldBy = true, state.by
		case !lost && state.told:
			news = append(news, Shadow{Key: key.loser, By: state.toldBy, Frontend: key.frontend, Over: true})
		}
		if !lost {
			delete(s.states, key)
		}
	}
	s.changed = nil
	slices.SortFunc(news, func(a, b Shadow) int {
		return cmp.Or(a.Key.Compare(b.Key), a.By.Compare(b.By), a.Frontend.Compare(b.Frontend))
	})
	return news
}

// Shadows gives the frontends that a Service has newly lost to another one, or
// lost to yet another, and those where that is over; nil when there are none, and
// while something has not reached the kernel. What comes and goes in between is
// never told. It is meant to be called after Settle.
func (l *Ledger) Shadows() []Shadow {
	if len(l.shadows.changed) == 0 || l.dirty.count > 0 {
		return nil
	}
	return l.shadows.take()
}

// exchange carries out a change of one account's claim: a nil object withdraws it.
func (l *Ledger) exchange(a *account, id dataplane.ID, cs *claims, object *dataplane.Object) {
	before := placeOf(cs, a)
	if object != nil {
		cs.set(claim{a, object})
	} else {
		cs.remove(a)
	}
	after := placeOf(cs, a)
	if l.naming.Leads(id) {
		l.upsetBy(a, id, before, after)
	}
	if !before.contested && !after.contested {
		return
	}
	if f, ok := l.naming.Frontend(id); ok {
		l.shade(a, f, cs, before, after)
	}
}

// place is how an account stands among the claims for an object.
type place struct {
	winner    *account
	loses     bool
	contested bool
}

func placeOf(cs *claims, a *account) place {
	p := place{contested: cs.contest != nil}
	if winner := cs.winner(); winner != nil {
		p.winner = winner.by
	}
	p.loses = p.contested && p.winner != a && cs.of(a) != nil
	return p
}

// shade notes what a change of a's claim means for a itself, for who won before and
// for who wins now. Nobody else has won or lost anything.
func (l *Ledger) shade(a *account, f dataplane.Frontend, cs *claims, before, after place) {
	if before.loses {
		l.shadows.regain(a.key, f)
	}
	if after.loses {
		l.shadows.lose(a.key, after.winner.key, f)
	}
	if before.winner == after.winner {
		return
	}
	if w := before.winner; w != nil && w != a {
		l.shadows.lose(w.key, after.winner.key, f)
	}
	if w := after.winner; w != nil && w != a {
		l.shadows.regain(w.key, f)
	}
	l.passOn(a, f, cs, before, after)
}

// passOn tells the others who lose that somebody else wins now. Where many want
// one frontend that is left out, for it would be a walk over all of them each time.
func (l *Ledger) passOn(a *account, f dataplane.Frontend, cs *claims, before, after place) {
	if cs.contest == nil || len(cs.contest.ranked) > scanMax {
		return
	}
	for _, c := range cs.contest.ranked {
		if c.by != a && c.by != before.winner && c.by != after.winner {
			l.shadows.pass(c.by.key, after.winner.key, f)
		}
	}
}

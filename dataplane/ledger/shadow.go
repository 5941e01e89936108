package ledger

import (
	"cmp"
	"slices"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// Shadow reports that a Service lost a frontend to another one, or no longer does.
type Shadow struct {
	// Key lost the frontend. By serves it, or did until now if Over is set.
	Key, By  service.Key
	Frontend dataplane.Frontend
	Over     bool
}

// shadowKey identifies a frontend that a Service lost.
type shadowKey struct {
	loser    service.Key
	frontend dataplane.Frontend
}

// shadowState is the state of a shadowed frontend, and what was reported of it.
type shadowState struct {
	// objects counts the loser's objects of this frontend that lost; by won the last
	// of them.
	objects int
	by      service.Key
	// told and toldBy are what was reported.
	told   bool
	toldBy service.Key
	// listed is set while the key is in changed.
	listed bool
}

// shadows derives lost frontends from changes of contested objects alone: while no two
// Services want the same frontend, it is empty and costs nothing.
//
// Invariant: a state is kept exactly while it has objects or is listed; count is
// the number of states with objects.
type shadows struct {
	states  map[shadowKey]*shadowState
	changed []shadowKey
	count   int
}

// lose notes that the loser lost one more object of a frontend.
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

// regain reverts one lose.
func (s *shadows) regain(loser service.Key, f dataplane.Frontend) {
	key := shadowKey{loser, f}
	state := s.states[key]
	if state.objects--; state.objects == 0 {
		s.count--
	}
	s.list(key, state)
}

// pass notes that another account wins against the loser now.
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

// take returns the changes since the last call, sorted by the two Services.
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

// Shadows returns the frontends that a Service newly lost to another one, and those that
// it no longer loses. It returns nil while something differs from the kernel, so what
// comes and goes in between is never reported. Call it after Settle.
func (l *Ledger) Shadows() []Shadow {
	if len(l.shadows.changed) == 0 || l.dirty.count > 0 {
		return nil
	}
	return l.shadows.take()
}

// exchange changes one account's claim; a nil object withdraws it. It returns the former
// winner, nil if there was none.
func (l *Ledger) exchange(a *account, id dataplane.ID, cs *claims, object *dataplane.Object) *account {
	before := positionOf(cs, a)
	if object != nil {
		cs.set(claim{a, object})
	} else {
		cs.remove(a)
	}
	after := positionOf(cs, a)
	if l.naming.Leads(id) {
		l.affects(a, id, before, after)
	}
	if !before.contested && !after.contested {
		return before.winner
	}
	if f, ok := l.naming.Frontend(id); ok {
		l.shade(a, f, cs, before, after)
	}
	return before.winner
}

// position is the position of an account among the claims for an object.
type position struct {
	winner    *account
	loses     bool
	contested bool
}

func positionOf(cs *claims, a *account) position {
	p := position{contested: cs.contest != nil}
	if winner := cs.winner(); winner != nil {
		p.winner = winner.by
	}
	p.loses = p.contested && p.winner != a && cs.of(a) != nil
	return p
}

// shade notes what a change of a's claim means for a, for the former winner and for the
// present one. Nothing changes for others.
func (l *Ledger) shade(a *account, f dataplane.Frontend, cs *claims, before, after position) {
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

// passOn notes for the other losers that the winner has changed. With many claims it
// does not, because that would walk over all of them each time.
func (l *Ledger) passOn(a *account, f dataplane.Frontend, cs *claims, before, after position) {
	if cs.contest == nil || len(cs.contest.ranked) > scanMax {
		return
	}
	for _, c := range cs.contest.ranked {
		if c.by != a && c.by != before.winner && c.by != after.winner {
			l.shadows.pass(c.by.key, after.winner.key, f)
		}
	}
}

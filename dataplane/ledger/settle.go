package ledger

import "github.com/sluice-proxy/sluice/dataplane"

// settle closes those of some contributions that are wholly in the kernel, and gives
// them. Each is judged by itself: one Service that the kernel refuses keeps no
// verdict from its neighbours. What was pending when a batch was planned still is,
// since nothing has been folded meanwhile.
func (l *Ledger) settle(contributions []dataplane.Contribution) []dataplane.Contribution {
	whole := contributions
	if l.dirty.count > 0 {
		whole = l.inForce(contributions)
	}
	for i := range whole {
		a := l.accounts[whole[i].Key]
		a.applied, a.pending, a.shrunk = a.folded, false, false
		a.frozen, a.standing = false, nil
		l.settleRemains(a)
		if a.folded.Gone {
			delete(l.accounts, a.key)
		}
		delete(l.pending, a)
	}
	if len(l.pending) == 0 {
		l.pending = emptied(l.pending, len(whole))
	}
	return whole
}

// inForce gives those contributions of which nothing differs: what they want is
// there, what they have given up is gone, and so it is for the composed objects that
// they have a part in. It costs the size of the contributors, and is only asked while
// something differs.
func (l *Ledger) inForce(contributions []dataplane.Contribution) []dataplane.Contribution {
	leaving, composing := map[*account]bool{}, false
	for _, d := range l.dirty.listed {
		l.steps++
		switch last := d.entry.claims.last(); {
		case !d.entry.dirty, d.entry.claims.len() > 0:
		case last != nil:
			leaving[last] = true
		default:
			composing = composing || l.layout != nil
		}
	}
	var whole []dataplane.Contribution
	for _, c := range contributions {
		a := l.accounts[c.Key]
		if !leaving[a] && !(composing && a.shrunk) && l.stands(a, composing) {
			whole = append(whole, c)
		}
	}
	return whole
}

// stands reports whether everything that an account claims is in the kernel.
func (l *Ledger) stands(a *account, composing bool) bool {
	objects := objectsOf(a.folded)
	for i := range objects {
		l.steps++
		object := &objects[i]
		switch e := l.entries.get(object.ID); {
		case e == nil || e.claims.of(a) == nil: // yielded
		case e.dirty:
			return false
		case composing && object.Kind == dataplane.Element && !l.reached(object.ID):
			return false
		}
	}
	return true
}

// reached reports whether the composed objects that lead to an element are in the
// kernel.
func (l *Ledger) reached(id dataplane.ID) bool {
	for _, at := range l.layout.Path(id) {
		if e := l.entries.get(at); e != nil && e.dirty {
			return false
		}
	}
	return true
}

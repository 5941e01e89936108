// SPDX-License-Identifier: Apache-2.0

package nftmodel

import (
	"maps"

	"github.com/sluice-proxy/sluice/service"
)

// A transaction changes everything together, except for what it deletes. nf_tables_commit (Linux
// 6.18) makes the new rules of all chains that stay visible, leaves those of deleted ones, and
// unregisters the hooks of deleted base chains about a millisecond later. Until then these run
// the rules that they had before the transaction. Those jump into chains that already have their
// new rules, and look into maps whose deleted elements are gone; a set that is deleted as a
// whole keeps its elements (nft_map_deactivate).

// leaving is what a transaction deletes.
type leaving struct {
	// before has the rules of changed chains at the start of the transaction.
	before map[*chain][]*rule
	chains []*chain
	// sets are those that keep elements, as they were when they were deleted.
	sets map[*set]map[string]*element
}

func newLeaving() leaving {
	return leaving{before: make(map[*chain][]*rule), sets: make(map[*set]map[string]*element)}
}

// changes notes the rules that a chain has before its first change.
func (l *leaving) changes(c *chain) {
	if _, noted := l.before[c]; !noted {
		l.before[c] = c.rules
	}
}

// set notes that a set is deleted.
func (l *leaving) set(s *set) {
	elements := make(map[string]*element)
	if !s.isMap() {
		elements = maps.Clone(s.elements)
	}
	l.sets[s] = elements
}

// table notes that a table is deleted with everything in it.
func (l *leaving) table(t *table) {
	l.chains = append(l.chains, t.order...)
	for _, s := range t.sets {
		l.set(s)
	}
}

// end gives what is deleted the state in which packets still meet it, and returns the base
// chains that have rules.
func (l *leaving) end() (bases []*chain) {
	for s, elements := range l.sets {
		s.elements, s.order, s.lists = elements, nil, nil
	}
	for _, c := range l.chains {
		if before, changed := l.before[c]; changed {
			c.setRules(before)
		}
		if c.base != nil && len(c.rules) > 0 {
			bases = append(bases, c)
		}
	}
	return bases
}

// Leaving reports whether the last transaction deleted base chains of a family that had rules.
func (k *Kernel) Leaving(family service.Family) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, c := range k.leaving {
		if familyOf(c.table.family) == family {
			return true
		}
	}
	return false
}

// ExploreLeaving is Explore while the hooks of the base chains that the last transaction deleted
// are not unregistered yet.
func (k *Kernel) ExploreLeaving(p Packet) ([]Outcome, map[Name]bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	reads := map[Name]bool{{Family: service.FamilyOf(p.Dst.Addr())}: true}
	return outcomes(k.walk(p, every, reads, k.leaving)), reads
}

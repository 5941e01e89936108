// SPDX-License-Identifier: Apache-2.0

package aggregator

import (
	"slices"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// bisection finds the culprits among suspects: the Services that the kernel rejects, or that do not
// land. It is pure. Its owner holds the suspects, releases the group that next returns, writes it,
// and reports the outcome.
//
// Goals: (1) a culprit failed alone; (2) each culprit costs about log₂ of the group
// in rejected tries, however many there are; (3) only suspects wait: between two tries
// the owner writes what others have changed; (4) the unaffected Services are applied early.
// Halving serves 2 and 4. If the first half of a rejected group lands, the other half has
// a culprit, and is halved without a try. A name in an error message is no proof: a
// named key is tried alone, or with others if many are named, and last.
//
// Invariant: a key is in at most one group.
type bisection struct {
	// groups wait to be tried; the next one is last.
	groups []group
	// current is being tried; without keys if none is.
	current group
	// spent counts the tries since the bisection was idle, and missed those in a row that
	// neither landed nor were rejected.
	spent, missed int
	// proof is set if something landed since then.
	proof bool
}

// group is a set of keys that are tried together.
type group struct {
	keys []service.Key
	// hasCulprit is set if the group certainly has a culprit.
	hasCulprit bool
	// first is set if the next group is the other half of this one.
	first bool
	// hinted is set if an earlier rejection of this group named keys.
	hinted bool
	// misses counts the tries that neither landed nor were rejected; unanswered is the receipt of the last one.
	misses     int
	unanswered *dataplane.Receipt
}

// groupMax bounds a group, so that others do not wait long for a try to end.
const groupMax = 1024

// idle reports whether nothing is left to try.
func (b *bisection) idle() bool { return len(b.groups) == 0 && len(b.current.keys) == 0 }

// trying reports whether a try has no result yet.
func (b *bisection) trying() bool { return len(b.current.keys) > 0 }

// doubt adds keys that did not land together, which may be the host's fault. They are tried last, and in halves: another
// try of all of them could last as long as the one before, and nearly always one half lands immediately.
func (b *bisection) doubt(keys []service.Key) {
	b.begin()
	half := len(keys) / 2
	b.groups = slices.Insert(b.groups, 0, group{keys: keys[half:]})
	if half > 0 {
		b.groups = slices.Insert(b.groups, 1, group{keys: keys[:half]})
	}
}

// last reports whether no group waits besides the one that is being tried.
func (b *bisection) last() bool { return len(b.groups) == 0 }

// suspect adds keys that were rejected together. Those that the error named are tried
// separately.
func (b *bisection) suspect(keys, named []service.Key) {
	b.begin()
	b.divide(keys, named, false)
}

// divide adds keys that were rejected together. Hinted is set if an earlier rejection of them
// named keys: the kernel may name one at a time, and the second time, halving is faster.
func (b *bisection) divide(keys, named []service.Key, hinted bool) {
	hints, others := partition(keys, named)
	if len(hints) > hintsMax && len(others) == 0 {
		hints, others = nil, keys // all are named, which says nothing
	}
	b.later(hints)
	if len(others) > 0 {
		b.groups = append(b.groups,
			group{keys: others, hasCulprit: len(hints) == 0 || hinted, hinted: len(hints) > 0})
	}
}

// alone adds a key to be tried next, alone. Misses counts its earlier tries that did not land.
func (b *bisection) alone(key service.Key, misses int) {
	b.begin()
	b.groups = append(b.groups, group{keys: []service.Key{key}, misses: misses})
}

// hintsMax is how many named keys are tried alone. A writer that names more may name all that
// a rejected message contains.
const hintsMax = 8

// later adds named keys to be tried last: each alone, or many as a group.
func (b *bisection) later(keys []service.Key) {
	if len(keys) > hintsMax {
		b.groups = slices.Insert(b.groups, 0, group{keys: keys, hasCulprit: true})
		return
	}
	singles := make([]group, len(keys))
	for i, key := range keys {
		singles[i].keys = []service.Key{key}
	}
	b.groups = slices.Concat(singles, b.groups)
}

// next returns the keys to release and write together; none if the bisection is over.
func (b *bisection) next() []service.Key {
	for len(b.groups) > 0 {
		last := len(b.groups) - 1
		g := b.groups[last]
		b.groups = b.groups[:last]
		if len(g.keys) > 1 && (g.hasCulprit || len(g.keys) > groupMax) {
			b.halve(g)
			continue
		}
		b.current = g
		b.spent++
		return g.keys
	}
	return nil
}

// begin resets the counts if the bisection is idle.
func (b *bisection) begin() {
	if b.idle() {
		b.spent, b.missed, b.proof = 0, 0, false
	}
}

// halve replaces a group by its two halves.
func (b *bisection) halve(g group) {
	half := len(g.keys) / 2
	b.groups = append(b.groups, group{keys: g.keys[half:], hinted: g.hinted},
		group{keys: g.keys[:half], first: g.hasCulprit, hinted: g.hinted})
}

// landed reports that the current group is applied.
func (b *bisection) landed() {
	if b.current.first && len(b.groups) > 0 {
		b.groups[len(b.groups)-1].hasCulprit = true
	}
	b.current, b.missed = group{}, 0
}

// rejected reports that the kernel rejected the current group, and that the rest of it is
// not applied. If the group was one key, it is the culprit.
func (b *bisection) rejected(rest, named []service.Key) (culprit service.Key, found bool) {
	g := b.current
	b.current, b.missed = group{}, 0
	if len(rest) == 1 && len(g.keys) == 1 {
		return rest[0], true
	}
	b.divide(rest, named, g.hinted)
	return service.Key{}, false
}

// unlanded reports that the current group neither landed nor was rejected, and that the rest of
// it is not applied. Several keys are halved, because that proves nothing about any of them. They come last: each try
// may have lasted long, and nearly always the other half lands immediately. A single key is tried again, last, unless
// it failed often enough or is known not to land.
func (b *bisection) unlanded(rest []service.Key, known bool) (culprit service.Key, found bool) {
	g := b.current
	b.current = group{}
	switch {
	case len(g.keys) > 1:
		b.groups = slices.Insert(b.groups, 0, group{keys: rest, hasCulprit: true})
	case known || g.misses+1 >= failuresMax:
		return rest[0], true
	default:
		g.misses++
		b.groups = slices.Insert(b.groups, 0, g)
	}
	return service.Key{}, false
}

// absolve notes that writes take longer than earlier tries lasted. So these tries prove nothing, and the groups into
// which they divided the suspects become one group again.
func (b *bisection) absolve() {
	var all group
	b.groups = slices.DeleteFunc(b.groups, func(g group) bool {
		if len(g.keys) > 1 {
			all.keys = append(all.keys, g.keys...)
		}
		return len(g.keys) > 1
	})
	if b.current.first = false; len(all.keys) > 0 {
		b.groups = append(b.groups, all)
	}
}

// partition separates the keys that are named from the others.
func partition(keys, named []service.Key) (in, out []service.Key) {
	if len(named) == 0 {
		return nil, keys
	}
	set := make(map[service.Key]bool, len(named))
	for _, key := range named {
		set[key] = true
	}
	for _, key := range keys {
		if set[key] {
			in = append(in, key)
		} else {
			out = append(out, key)
		}
	}
	return in, out
}

package aggregator

import (
	"slices"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// search finds the culprits among suspects: the Services that the kernel refuses, or that do not
// land. It is pure. Its owner holds the suspects, releases the group that next returns, writes it,
// and reports the outcome.
//
// Goals: (1) a culprit failed alone; (2) each culprit costs about log₂ of the group
// in refused tries, however many there are; (3) only suspects wait: between two tries
// the owner writes what others have changed; (4) the innocent are in force early.
// Halving serves 2 and 4. If the first half of a refused group lands, the other half has
// a culprit, and is halved without a try. A name in an error message is no proof: a
// named key is tried alone, or with others if many are named, and last.
//
// Invariant: a key is in at most one group.
type search struct {
	// groups wait to be tried; the next one is last.
	groups []group
	// current is being tried; without keys if none is.
	current group
	// spent counts the tries since the search was idle, and missed those in a row that
	// neither landed nor were refused.
	spent, missed int
}

// group is a set of keys that are tried together.
type group struct {
	keys []service.Key
	// tainted is set if the group certainly has a culprit.
	tainted bool
	// first is set if the next group is the other half of this one.
	first bool
	// hinted is set if an earlier refusal of this group named keys.
	hinted bool
	// restore is set if the group is one culprit for which what was last in force is
	// tried, not its newest fragment.
	restore bool
	// misses counts the tries that neither landed nor were refused; unanswered is the receipt
	// of the last one.
	misses     int
	unanswered *dataplane.Receipt
}

// groupMax bounds a group, so that others do not wait long for a try to end.
const groupMax = 1024

// idle reports whether nothing is left to try.
func (s *search) idle() bool { return len(s.groups) == 0 && len(s.current.keys) == 0 }

// trying reports whether a try has no result yet.
func (s *search) trying() bool { return len(s.current.keys) > 0 }

// doubt adds keys that did not land together, which may be the host's fault. They are tried
// last.
func (s *search) doubt(keys []service.Key) {
	s.begin()
	s.groups = slices.Insert(s.groups, 0, group{keys: keys})
}

// suspect adds keys that were refused together. Those that the error named are tried
// separately.
func (s *search) suspect(keys, named []service.Key) {
	s.begin()
	s.divide(keys, named, false)
}

// divide adds keys that were refused together. Hinted is set if an earlier refusal of them
// named keys: the kernel may name one at a time, and the second time, halving is faster.
func (s *search) divide(keys, named []service.Key, hinted bool) {
	hints, others := partition(keys, named)
	if len(hints) > hintsMax && len(others) == 0 {
		hints, others = nil, keys // all are named, which says nothing
	}
	s.later(hints)
	if len(others) > 0 {
		s.groups = append(s.groups,
			group{keys: others, tainted: len(hints) == 0 || hinted, hinted: len(hints) > 0})
	}
}

// alone adds a key to be tried next, alone, after so many misses.
func (s *search) alone(key service.Key, misses int) {
	s.begin()
	s.groups = append(s.groups, group{keys: []service.Key{key}, misses: misses})
}

// restore adds a culprit; what was last in force of it is tried next.
func (s *search) restore(key service.Key) {
	s.groups = append(s.groups, group{keys: []service.Key{key}, restore: true})
}

// hintsMax is how many named keys are tried alone. A writer that names more may name all that
// a refused message contains.
const hintsMax = 8

// later adds named keys to be tried last: each alone, or many as a group.
func (s *search) later(keys []service.Key) {
	if len(keys) > hintsMax {
		s.groups = slices.Insert(s.groups, 0, group{keys: keys, tainted: true})
		return
	}
	singles := make([]group, len(keys))
	for i, key := range keys {
		singles[i].keys = []service.Key{key}
	}
	s.groups = slices.Concat(singles, s.groups)
}

// next returns the keys to release and write together; none if the search is over.
func (s *search) next() []service.Key {
	for len(s.groups) > 0 {
		last := len(s.groups) - 1
		g := s.groups[last]
		s.groups = s.groups[:last]
		if len(g.keys) > 1 && (g.tainted || len(g.keys) > groupMax) {
			s.halve(g)
			continue
		}
		s.current = g
		s.spent++
		return g.keys
	}
	return nil
}

// begin resets the count if the search is idle.
func (s *search) begin() {
	if s.idle() {
		s.spent, s.missed = 0, 0
	}
}

// halve replaces a group by its two halves.
func (s *search) halve(g group) {
	half := len(g.keys) / 2
	s.groups = append(s.groups, group{keys: g.keys[half:], hinted: g.hinted},
		group{keys: g.keys[:half], first: g.tainted, hinted: g.hinted})
}

// landed reports that the current group is in force.
func (s *search) landed() {
	if s.current.first && len(s.groups) > 0 {
		s.groups[len(s.groups)-1].tainted = true
	}
	s.current, s.missed = group{}, 0
}

// refused reports that the kernel refused the current group, and that the rest of it is
// not in force. If the group was one key, it is the culprit.
func (s *search) refused(rest, named []service.Key) (culprit service.Key, found bool) {
	g := s.current
	s.current, s.missed = group{}, 0
	if len(rest) == 1 && len(g.keys) == 1 {
		return rest[0], true
	}
	s.divide(rest, named, g.hinted)
	return service.Key{}, false
}

// unlanded reports that the current group neither landed nor was refused, and that the rest of
// it is not in force. Several keys are halved: that proves nothing about any of them. A key
// alone is tried again, last, unless it failed often enough or is known to do so.
func (s *search) unlanded(rest []service.Key, known bool) (culprit service.Key, found bool) {
	g := s.current
	s.current = group{}
	switch {
	case len(g.keys) > 1:
		s.groups = append(s.groups, group{keys: rest, tainted: true})
	case known || g.misses+1 >= failuresMax:
		return rest[0], true
	default:
		g.misses++
		s.groups = slices.Insert(s.groups, 0, g)
	}
	return service.Key{}, false
}

// putBack reports that the try had no result.
func (s *search) putBack() {
	if s.trying() {
		s.current.misses++
		s.groups = append(s.groups, s.current)
	}
	s.current = group{}
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

package aggregator

import (
	"slices"

	"github.com/sluice-proxy/sluice/service"
)

// search sorts out which of some suspects the kernel refuses, while everybody else is
// served. It is pure: its owner holds the suspects back, releases the group that next
// gives, writes it, and tells the outcome.
//
// Goals: (1) nobody is convicted but who was refused alone; (2) the refused tries are
// about log₂ of the group for each culprit, however many there are; (3) nobody but the
// suspects waits: between two tries the owner writes what others have changed; (4)
// those who are innocent are in force early. Halving serves 2 and 4. When the first
// half of a refused group lands, the other half holds the culprit, and is halved
// without a try. A hint of the tool is no proof: who is named is tried alone, and
// last.
//
// Invariant: a key is in one group at most.
type search struct {
	// groups wait to be tried, next one last.
	groups []group
	// current is on trial; without keys when none is.
	current group
	// spent counts the tries since the search was last idle.
	spent int
}

// group is tried together.
type group struct {
	keys []service.Key
	// tainted says that the group holds a culprit for certain.
	tainted bool
	// first says that the group on top of the stack is the other half of this one.
	first bool
	// hinted says that a refusal of this group has named somebody before.
	hinted bool
	// restore says that it is a culprit, of which nothing new is tried but what was last
	// in force.
	restore bool
}

// groupMax bounds what is tried at once, so that others do not wait long for a try to
// end.
const groupMax = 1024

// idle reports whether there is nobody left to try.
func (s *search) idle() bool { return len(s.groups) == 0 && len(s.current.keys) == 0 }

// suspect adds keys that were refused together. Those whom the tool has named are
// tried apart from the others.
func (s *search) suspect(keys, named []service.Key) {
	s.begin()
	singles, others := partition(keys, named)
	s.later(singles)
	if len(others) > 0 {
		s.groups = append(s.groups, group{keys: others, tainted: len(singles) == 0, hinted: len(singles) > 0})
	}
}

// alone adds a key that is tried next, by itself.
func (s *search) alone(key service.Key) {
	s.begin()
	s.groups = append(s.groups, group{keys: []service.Key{key}})
}

// restore adds a culprit, for which what was last in force is tried next.
func (s *search) restore(key service.Key) {
	s.groups = append(s.groups, group{keys: []service.Key{key}, restore: true})
}

// later adds keys that are tried last, each by itself.
func (s *search) later(keys []service.Key) {
	singles := make([]group, len(keys))
	for i, key := range keys {
		singles[i].keys = []service.Key{key}
	}
	s.groups = slices.Concat(singles, s.groups)
}

// next gives the keys to release and write together; none when the search is over.
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

// begin counts from the beginning where there is nobody on trial.
func (s *search) begin() {
	if s.idle() {
		s.spent = 0
	}
}

// halve puts the two halves of a group in its place.
func (s *search) halve(g group) {
	half := len(g.keys) / 2
	s.groups = append(s.groups, group{keys: g.keys[half:], hinted: g.hinted},
		group{keys: g.keys[:half], first: g.tainted, hinted: g.hinted})
}

// landed says that the group on trial is in force.
func (s *search) landed() {
	if s.current.first && len(s.groups) > 0 {
		s.groups[len(s.groups)-1].tainted = true
	}
	s.current = group{}
}

// refused says that the kernel has refused the group on trial, of which the rest is
// not in force. It gives the culprit, if the group was one key.
func (s *search) refused(rest, named []service.Key) (culprit service.Key, found bool) {
	g := s.current
	s.current = group{}
	if len(rest) == 1 && len(g.keys) == 1 {
		return rest[0], true
	}
	singles, others := partition(rest, named)
	s.later(singles)
	if len(others) > 0 {
		// The tool names one at a time, perhaps: the second time, halving gets on.
		s.groups = append(s.groups, group{keys: others, tainted: len(singles) == 0 || g.hinted, hinted: len(singles) > 0})
	}
	return service.Key{}, false
}

// putBack says that the try was not judged.
func (s *search) putBack() {
	if len(s.current.keys) > 0 {
		s.groups = append(s.groups, s.current)
	}
	s.current = group{}
}

// partition gives those of the keys that are named, and the others.
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

package aggregator

import (
	"slices"
	"time"

	"github.com/sluice-proxy/sluice/service"
)

// search finds the culprits among suspects: the Services that the kernel refuses. It is
// pure. Its owner holds the suspects, releases the group that next returns, writes it,
// and reports the outcome.
//
// Goals: (1) a culprit was refused alone; (2) each culprit costs about log₂ of the group
// in refused tries, however many there are; (3) only suspects wait: between two tries
// the owner writes what others have changed; (4) the innocent are in force early.
// Halving serves 2 and 4. If the first half of a refused group lands, the other half has
// a culprit, and is halved without a try. A name in an error message is no proof: a
// named key is tried alone, and last.
//
// Invariant: a key is in at most one group.
type search struct {
	// groups wait to be tried; the next one is last.
	groups []group
	// current is being tried; without keys if none is.
	current group
	// spent counts the tries since the search was idle.
	spent int
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
}

// groupMax bounds a group, so that others do not wait long for a try to end.
const groupMax = 1024

// idle reports whether nothing is left to try.
func (s *search) idle() bool { return len(s.groups) == 0 && len(s.current.keys) == 0 }

// suspect adds keys that were refused together. Those that the error named are tried
// separately.
func (s *search) suspect(keys, named []service.Key) {
	s.begin()
	singles, others := partition(keys, named)
	s.later(singles)
	if len(others) > 0 {
		s.groups = append(s.groups,
			group{keys: others, tainted: len(singles) == 0, hinted: len(singles) > 0})
	}
}

// alone adds a key to be tried next, alone.
func (s *search) alone(key service.Key) {
	s.begin()
	s.groups = append(s.groups, group{keys: []service.Key{key}})
}

// restore adds a culprit; what was last in force of it is tried next.
func (s *search) restore(key service.Key) {
	s.groups = append(s.groups, group{keys: []service.Key{key}, restore: true})
}

// later adds keys to be tried last, each alone.
func (s *search) later(keys []service.Key) {
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
		s.spent = 0
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
	s.current = group{}
}

// refused reports that the kernel refused the current group, and that the rest of it is
// not in force. If the group was one key, it is the culprit.
func (s *search) refused(rest, named []service.Key) (culprit service.Key, found bool) {
	g := s.current
	s.current = group{}
	if len(rest) == 1 && len(g.keys) == 1 {
		return rest[0], true
	}
	singles, others := partition(rest, named)
	s.later(singles)
	if len(others) > 0 {
		// The kernel may name one at a time: the second time, halving is faster.
		s.groups = append(s.groups,
			group{keys: others, tainted: len(singles) == 0 || g.hinted, hinted: len(singles) > 0})
	}
	return service.Key{}, false
}

// putBack reports that the try had no result.
func (s *search) putBack() {
	if len(s.current.keys) > 0 {
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

// quarantine holds the culprits, and when each is tried again. It is pure.
type quarantine struct {
	held map[service.Key]*heldKey
	// first is the key that is tried next, at firstAt (zero for none). Both are out
	// of date if changed is set.
	first   service.Key
	firstAt time.Time
	changed bool
}

// heldKey is one quarantined key.
type heldKey struct {
	revision service.Revision
	reason   string
	since    time.Time
	// triedAt is when the key was last refused; tryAt, if set, is when it is tried
	// again.
	triedAt, tryAt time.Time
	// trying is set during a try.
	trying bool
}

// tryPause is the shortest pause between two tries of one key. So a bad Service that
// changes all the time costs one refused write per second.
const tryPause = time.Second

// triesPerAudit is how many keys are tried again after each audit.
const triesPerAudit = 4

// put adds a key, or notes that it was refused again.
func (q *quarantine) put(now time.Time, key service.Key, revision service.Revision, reason string) {
	c := q.held[key]
	if c == nil {
		c = &heldKey{since: now}
		q.held[key] = c
	}
	q.changed = true
	c.revision, c.reason, c.triedAt, c.tryAt, c.trying = revision, reason, now, time.Time{}, false
}

// ask schedules another try of a key. It reports whether the key is quarantined.
func (q *quarantine) ask(key service.Key) bool {
	c := q.held[key]
	if c != nil && c.tryAt.IsZero() && !c.trying {
		c.tryAt = c.triedAt.Add(tryPause)
		q.changed = true
	}
	return c != nil
}

// tried notes that a try of a key begins.
func (q *quarantine) tried(key service.Key) {
	q.held[key].tryAt, q.held[key].trying, q.changed = time.Time{}, true, true
}

// askOldest schedules tries of the keys that have waited longest.
func (q *quarantine) askOldest() {
	keys := q.keys()
	slices.SortFunc(keys, func(a, b service.Key) int {
		return q.held[a].triedAt.Compare(q.held[b].triedAt)
	})
	for _, key := range keys[:min(len(keys), triesPerAudit)] {
		q.ask(key)
	}
}

// due returns the key whose try is due, or the time of the next try, zero for none. It
// walks the keys only after a change.
func (q *quarantine) due(now time.Time) (key service.Key, ok bool, next time.Time) {
	if q.changed {
		q.changed, q.first, q.firstAt = false, service.Key{}, time.Time{}
		for k, c := range q.held {
			by := c.tryAt.Compare(q.firstAt)
			if !c.tryAt.IsZero() && (q.firstAt.IsZero() || by < 0 || by == 0 && k.Compare(q.first) < 0) {
				q.first, q.firstAt = k, c.tryAt
			}
		}
	}
	if q.firstAt.IsZero() || q.firstAt.After(now) {
		return service.Key{}, false, q.firstAt
	}
	return q.first, true, now
}

// release removes a key. It reports whether the key was quarantined.
func (q *quarantine) release(key service.Key) bool {
	_, was := q.held[key]
	delete(q.held, key)
	q.changed = q.changed || was
	return was
}

// keys returns the keys in order.
func (q *quarantine) keys() []service.Key {
	keys := make([]service.Key, 0, len(q.held))
	for key := range q.held {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, service.Key.Compare)
	return keys
}

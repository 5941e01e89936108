package aggregator

import (
	"math/bits"
	"slices"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// search looks for the Service whose fragment the kernel refuses. It is pure:
// its owner carries out each step (hold, release, write) and tells the outcome.
//
// Blame from the tools is a hint, not proof, so: (1) control: write the scaffold
// alone; if that is refused the fault is the node's, and nobody is convicted;
// (2) isolate: try groups of Services, halving those that are refused; a group
// that lands is progress and leaves the search; (3) convict: a Service is
// guilty when it is refused alone. The number of refused tries is bounded; the
// remaining suspects are quarantined together then, and tried again one by one
// later.
//
// Where a writer proves who was refused, object by object, and that others landed,
// (1) and (2) would only take away what landed: the few who are named are tried
// again, each alone.
type search struct {
	control bool
	// groups wait to be tried, next one last.
	groups  [][]service.Key
	current []service.Key
	// budget is the number of refusals that may still be spent.
	budget int
	reason string
	guilty []conviction
}

// conviction is one Service found guilty, with the kernel's words.
type conviction struct {
	key    service.Key
	reason string
}

// step is what the owner has to do next.
type step struct {
	hold    []service.Key
	release []service.Key
	// control asks for a write of the scaffold alone, objects that are known
	// to be there included.
	control bool
	// done ends the search; nodeAtFault says how it ended.
	done        bool
	nodeAtFault bool
}

// retrialMax is how many may be tried again one by one. A kernel that refuses more at
// once may have another reason than they.
const retrialMax = 16

// searchAfter starts the search that a refusal asks for.
func searchAfter(r dataplane.Receipt, keys []service.Key, reason string) (*search, step) {
	if r.Proven && len(r.Suspects) <= retrialMax {
		return newRetrial(r.Suspects, reason)
	}
	return newSearch(keys, r.Suspects, reason)
}

// newSearch starts from a refused batch of the given keys. Suspects are those
// that the tool pointed at.
func newSearch(keys, suspects []service.Key, reason string) (*search, step) {
	s := &search{control: true, reason: reason}
	keys = slices.DeleteFunc(slices.Clone(keys), func(k service.Key) bool { return k == service.Node })
	var others []service.Key
	for _, key := range keys {
		if slices.Contains(suspects, key) {
			s.groups = append(s.groups, []service.Key{key})
		} else {
			others = append(others, key)
		}
	}
	if len(s.groups) > 0 && len(others) > 0 {
		s.groups = append(s.groups, others)
	} else if len(others) > 0 {
		s.push(others)
	}
	s.budget = 2*bits.Len(uint(len(keys))) + 2 + len(s.groups)
	return s, step{hold: keys, control: true}
}

// newRetrial tries those again, each alone, who are known to have been refused by
// themselves while others landed: there is nobody else to hold, and the scaffold is
// above suspicion.
func newRetrial(suspects []service.Key, reason string) (*search, step) {
	s := &search{reason: reason, budget: len(suspects) + 1}
	for _, key := range suspects {
		s.groups = append(s.groups, []service.Key{key})
	}
	return s, s.next(step{hold: suspects})
}

// newTrial tries one quarantined Service again, alone.
func newTrial(key service.Key) (*search, step) {
	s := &search{current: []service.Key{key}, budget: 1}
	return s, step{release: s.current}
}

// landed says that the step's write is in the kernel.
func (s *search) landed() step {
	s.control = false
	return s.next(step{})
}

// refused says that the kernel refused the step's write.
func (s *search) refused(reason string) step {
	if s.control {
		return step{release: s.rest(), done: true, nodeAtFault: true}
	}
	s.budget--
	group := s.current
	out := step{hold: group}
	switch {
	case len(group) == 1:
		s.guilty = append(s.guilty, conviction{group[0], reason})
	case s.budget > 0:
		s.push(group)
	default:
		s.convict(group, reason)
	}
	if s.budget <= 0 {
		s.convict(s.rest(), reason)
		s.groups = nil
	}
	return s.next(out)
}

// abandon ends the search without a judgement, because the write did not get
// so far as to be refused; everybody not yet convicted is released.
func (s *search) abandon() step {
	release := s.rest()
	return step{release: release, done: true}
}

func (s *search) next(out step) step {
	s.current = nil
	if len(s.groups) == 0 {
		out.done = true
		return out
	}
	last := len(s.groups) - 1
	s.current = s.groups[last]
	s.groups = s.groups[:last]
	out.release = s.current
	return out
}

// push queues the two halves of a group; a single key stays whole.
func (s *search) push(group []service.Key) {
	if len(group) == 1 {
		s.groups = append(s.groups, group)
		return
	}
	half := len(group) / 2
	s.groups = append(s.groups, group[half:], group[:half])
}

func (s *search) convict(keys []service.Key, reason string) {
	for _, key := range keys {
		s.guilty = append(s.guilty, conviction{key, reason})
	}
}

// rest gives the keys that wait to be tried.
func (s *search) rest() []service.Key { return slices.Concat(s.groups...) }

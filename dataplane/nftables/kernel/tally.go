package kernel

import (
	"maps"
	"net/netip"
	"sync"
	"time"

	"github.com/sluice-proxy/sluice/dataplane/nftables/render"
	"github.com/sluice-proxy/sluice/service"
)

// Tally has what the counters of elements had counted when a writer deleted them. It outlives its writer: the
// next writer of the process for the same family goes on with it. It is safe for concurrent use, and holds
// its lock for map operations only.
//
// Invariant: from since on, what is carried of a set and what the kernel's counters in it have add up to what
// happened.
type Tally struct {
	mu    sync.Mutex
	since time.Time
	sets  map[string]*setTally
	// size is the number of carried counts.
	size int
	// adopted is set once a writer of the process has read the table.
	adopted bool
}

// setTally is what is carried of one set.
type setTally struct {
	// version is odd while a transaction changes the set.
	version uint64
	carried map[service.Frontend]endpointTally
}

// endpointTally is by endpoint. In sets that do not count by endpoint it has the zero one.
type endpointTally map[netip.AddrPort]uint64

// carriedMax bounds what is carried. A node whose counters no one reads can reach it, since a reading drops
// the endpoints that have gone.
const carriedMax = 100_000

// NewTally returns a tally that begins now.
func NewTally() *Tally { return &Tally{since: time.Now(), sets: make(map[string]*setTally)} }

// adopt is called after each reading of the table by a writer. Before the first one, another process may have
// written and carried counts. Without a table, there is nothing that what is carried belongs to.
func (t *Tally) adopt(found bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !found || !t.adopted {
		t.drop()
	}
	t.adopted = true
}

func (t *Tally) drop() {
	t.since, t.size = time.Now(), 0
	for _, s := range t.sets {
		s.carried = nil
	}
}

// lost notes that counts before now are incomplete.
func (t *Tally) lost() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.since = time.Now()
}

func (t *Tally) of(set string) *setTally {
	s := t.sets[set]
	if s == nil {
		s = &setTally{}
		t.sets[set] = s
	}
	return s
}

// began returns from when on the counts are complete.
func (t *Tally) began() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.since
}

// turn makes the versions of sets odd, or even again.
func (t *Tally) turn(sets map[string]bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for set := range sets {
		t.of(set).version++
	}
}

// carry adds the counter of a deleted element.
func (t *Tally) carry(set string, c render.Count) {
	if c.Packets == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.of(set)
	if s.carried == nil {
		s.carried = make(map[service.Frontend]endpointTally)
	}
	of := s.carried[c.Frontend]
	if of == nil {
		of = make(endpointTally, 1)
		s.carried[c.Frontend] = of
	}
	if _, known := of[c.Endpoint]; !known {
		if t.size++; t.size > carriedMax {
			t.drop()
			return
		}
	}
	of[c.Endpoint] += c.Packets
}

// forget drops what is carried of a frontend.
func (t *Tally) forget(f service.Frontend) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.sets {
		t.size -= len(s.carried[f])
		delete(s.carried, f)
	}
}

// end drops what is carried of a set.
func (t *Tally) end(set string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := t.sets[set]; s != nil {
		for _, of := range s.carried {
			t.size -= len(of)
		}
		delete(t.sets, set)
	}
}

// version returns the version of a set, and whether no transaction changes it.
func (t *Tally) version(set string) (version uint64, quiet bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.of(set)
	return s.version, s.version%2 == 0
}

// add adds what is carried of a set to what was read of it, unless the set has changed since a version.
func (t *Tally) add(set string, version uint64, read map[service.Frontend]endpointTally) (ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.of(set)
	if s.version != version {
		return false
	}
	for f, of := range s.carried {
		if read[f] == nil {
			read[f] = make(endpointTally, len(of))
		}
		for endpoint, n := range of {
			read[f][endpoint] += n
		}
	}
	return true
}

// prune drops what is carried of frontends and endpoints that are not in the kernel any more, unless a set
// has changed since it was read. The next reading does it then.
func (t *Tally) prune(versions map[string]uint64, live func(set string, f service.Frontend, endpoint netip.AddrPort) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for set, s := range t.sets {
		if version, read := versions[set]; read && version != s.version {
			return
		}
	}
	for set, s := range t.sets {
		for f, of := range s.carried {
			before := len(of)
			maps.DeleteFunc(of, func(endpoint netip.AddrPort, _ uint64) bool { return !live(set, f, endpoint) })
			if t.size -= before - len(of); len(of) == 0 {
				delete(s.carried, f)
			}
		}
	}
}

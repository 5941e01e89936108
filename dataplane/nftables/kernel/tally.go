// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"maps"
	"net/netip"
	"sync"
	"time"

	"github.com/sluice-proxy/sluice/dataplane/nftables/render"
	"github.com/sluice-proxy/sluice/service"
)

// Tally carries the counts of elements that a writer deleted. It outlives its writer: the next writer of the
// process for the same family continues with it. It is safe for concurrent use, and holds its lock only for
// map operations.
//
// Invariant: for each set, the carried counts and the kernel's counters add up to everything that happened from
// since on.
type Tally struct {
	mu    sync.Mutex
	since time.Time
	sets  map[string]*setTally
	// size is the number of carried counts.
	size int
	// adopted is set once a writer of the process has read the table.
	adopted bool
}

// setTally has the carried counts of one set.
type setTally struct {
	// version is odd while a transaction changes the set.
	version uint64
	carried map[service.Frontend]endpointTally
}

// endpointTally has counts by endpoint. For sets that do not count by endpoint, the key is the zero AddrPort.
type endpointTally map[netip.AddrPort]uint64

// carriedMax limits the carried counts. A node whose counters are never read can reach it, because only a
// reading drops removed endpoints.
const carriedMax = 100_000

// NewTally returns a tally that begins now.
func NewTally() *Tally { return &Tally{since: time.Now(), sets: make(map[string]*setTally)} }

// adopt is called after each reading of the table by a writer. It drops the carried counts after the first
// reading, because another process may have written and carried counts before, and if there is no table.
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

// began returns the time from which on the counts are complete.
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

// forget drops the carried counts of a frontend.
func (t *Tally) forget(f service.Frontend) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.sets {
		t.size -= len(s.carried[f])
		delete(s.carried, f)
	}
}

// end drops the carried counts of a set.
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

// add adds the carried counts of a set to those that were read, unless the set's version changed.
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

// prune drops the carried counts of frontends and endpoints that are not in the kernel any more. If a set
// changed since it was read, prune leaves this to the next reading.
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

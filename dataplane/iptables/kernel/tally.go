package kernel

import (
	"maps"
	"net/netip"
	"sync"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/iptables/render"
	"github.com/sluice-proxy/sluice/service"
)

// place is what a rule counts for: a frontend, an endpoint, or a chain that it leads to.
type place struct {
	frontend service.Frontend
	endpoint netip.AddrPort
	chain    string
}

// gone is the place of connections to endpoints that the rules of a chain no longer have.
var gone place

// counters are the packets that rules counted, by chain and place.
type counters map[dataplane.ID]map[place]uint64

// tally has what rules had counted when they were deleted. In the nft variant the kernel announces each
// deleted rule with its counter. In the legacy variant, nothing tells what a rule counted after the last
// reading: what is carried is a lower bound.
//
// It is safe for concurrent use, and holds its lock for map operations only.
type tally struct {
	mu sync.Mutex
	// since is from when on all deleted rules are known; zero if they are not.
	since time.Time
	// seen is the last generation of nf_tables whose announcements are in the tally.
	seen uint32
	// turns is odd while a write changes chains in the legacy variant, and even otherwise. It changes
	// with each change.
	turns  uint64
	chains map[dataplane.ID]*chainTally
	// ports has a frontend of service ports, by render.PortOf.
	ports map[string]service.Frontend
	size  int
	// most bounds what is remembered: carriedMax, or less in tests.
	most int
}

// chainTally is what is carried of one chain.
type chainTally struct {
	// changed is the last generation that deleted a rule.
	changed uint32
	// turn is the last one that wrote the chain in the legacy variant.
	turn uint64
	// carried is what deleted rules had counted, last what the rules had at the last reading (legacy variant).
	carried, last map[place]uint64
}

// carriedMax bounds what a tally remembers, about 100 bytes each. A node whose counters no one reads can reach it.
const carriedMax = 300_000

func newTally() *tally {
	return &tally{chains: make(map[dataplane.ID]*chainTally), ports: make(map[string]service.Frontend), most: carriedMax}
}

// begin notes that the announcements of all generations after a given one will follow.
func (t *tally) begin(generation uint32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.since = time.Now()
	if int32(generation-t.seen) > 0 || len(t.chains) == 0 {
		t.seen = generation
	}
}

// end notes that no announcements follow, or that some were lost.
func (t *tally) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.since = time.Time{}
}

// deleted is a deleted rule.
type deleted struct {
	chain dataplane.ID
	counter
}

// commit adds the rules that a generation deleted.
func (t *tally) commit(generation uint32, touched bool, rules []deleted) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.seen = generation
	if touched {
		t.turns += 2
	}
	for _, d := range rules {
		if port, f, ok := d.dispatches(d.chain); ok {
			t.ports[port] = f
		}
		c := t.chains[d.chain]
		if c == nil {
			c = &chainTally{carried: make(map[place]uint64)}
			t.chains[d.chain] = c
		}
		c.changed = generation
		if at, counts := d.at(d.chain); counts && d.packets > 0 {
			t.carry(c, at, d.packets)
		}
	}
	if t.size+len(t.ports)+len(t.chains) > t.most {
		t.drop()
	}
}

func (t *tally) carry(c *chainTally, at place, packets uint64) {
	if _, known := c.carried[at]; !known {
		t.size++
	}
	c.carried[at] += packets
}

// drop forgets what is carried.
func (t *tally) drop() {
	if !t.since.IsZero() {
		t.since = time.Now()
	}
	clear(t.ports)
	clear(t.chains)
	t.size = 0
}

// rewriting is called before a write of the legacy variant changes chains.
func (t *tally) rewriting(batch *dataplane.Batch) { t.turn(batch, false) }

// rewritten is called after it. The rules of chains that landed begin again from 0.
func (t *tally) rewritten(batch *dataplane.Batch, receipt *dataplane.Receipt) {
	t.turn(batch, receipt.Outcome == dataplane.Landed)
}

func (t *tally) turn(batch *dataplane.Batch, landed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.turns++
	for i := range batch.Changes {
		c := t.chains[batch.Changes[i].ID]
		if c == nil {
			continue
		}
		if c.turn = t.turns; landed {
			for at, n := range c.last {
				t.carry(c, at, n)
			}
			c.last = nil
		}
	}
}

// began returns from when on counts are complete, and a number that changes with the rules.
func (t *tally) began() (since time.Time, turns uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.since, t.turns
}

// plus adds what is carried of a chain to what was read of it in a generation, of which the low bits are
// known. It reports false if the chain has to be read again: announcements are on the way, or the chain
// changed since it was read.
func (t *tally) plus(chain dataplane.ID, generation uint16, read map[place]uint64) (sum map[place]uint64, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	ahead := int16(uint16(t.seen) - generation)
	if ahead < 0 {
		return nil, false
	}
	c := t.chains[chain]
	if c == nil {
		return read, true
	}
	if t.seen-c.changed < uint32(ahead) {
		return nil, false
	}
	sum = maps.Clone(c.carried)
	for at, n := range read {
		sum[at] += n
	}
	return sum, true
}

// rest adds what is carried of chains that are not in what was read.
func (t *tally) rest(sums counters) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for chain, c := range t.chains {
		if _, read := sums[chain]; !read {
			sums[chain] = maps.Clone(c.carried)
		}
	}
}

// grown is plus and rest for a reading of all chains that began at a number of turns, and was not announced. A
// counter that is smaller than before began again from 0. Chains that were written meanwhile have their former
// counts.
func (t *tally) grown(turns uint64, read counters) counters {
	t.mu.Lock()
	defer t.mu.Unlock()
	for chain := range read {
		if t.chains[chain] == nil {
			t.chains[chain] = &chainTally{carried: make(map[place]uint64)}
		}
	}
	sums := make(counters, len(t.chains))
	for chain, c := range t.chains {
		if c.turn <= turns && c.turn%2 == 0 {
			for at, before := range c.last {
				if read[chain][at] < before {
					t.carry(c, at, before)
				}
			}
			c.last = read[chain]
		}
		sums[chain] = maps.Clone(c.carried)
		for at, n := range c.last {
			sums[chain][at] += n
		}
	}
	return sums
}

// earlier returns a frontend of each service port that rules led to.
func (t *tally) earlier() map[string]service.Frontend {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.ports)
}

// prune keeps the frontends of service ports that exist, and drops what is carried for places that do not exist
// any more. The connections of endpoints that have gone remain those of their service port. Nothing is dropped if
// rules changed since turns: what moved meanwhile may seem to be missing.
func (t *tally) prune(turns uint64, ports map[string]service.Frontend, fate func(chain dataplane.ID, at place) (kept place, ok bool)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	maps.Copy(t.ports, ports)
	if t.turns != turns || turns%2 != 0 {
		return
	}
	t.size = 0
	carry := make(map[string]bool)
	for chain, c := range t.chains {
		for at, n := range c.carried {
			kept, ok := fate(chain, at)
			if ok && kept == at {
				continue
			}
			delete(c.carried, at)
			if ok {
				c.carried[kept] += n
			}
		}
		if t.size += len(c.carried); len(c.carried) == 0 && len(c.last) == 0 {
			delete(t.chains, chain)
		} else {
			carry[render.PortOf(chain.Name)] = true
		}
	}
	maps.DeleteFunc(t.ports, func(port string, _ service.Frontend) bool {
		_, exists := ports[port]
		return !exists && !carry[port]
	})
}

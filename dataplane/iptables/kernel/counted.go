package kernel

import (
	"maps"
	"net/netip"
	"sync"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/traffic"
	"github.com/sluice-proxy/sluice/service"
)

// counted has totals that grow by the differences of readings. A write replaces all rules of a chain. The new rules
// begin at 0, and what the deleted ones counted after the last reading is lost. Writes are noted, because a new counter
// that passes the value of the deleted one before the next reading looks like the same counter.
type counted struct {
	// totals are those of subjects with traffic, missing those that the last reading did not find. They belong to the
	// reading.
	totals  map[subject]uint64
	missing map[subject]bool
	// frontends has the frontend of each service port, by render.PortOf. It belongs to the reading.
	frontends map[string]service.Frontend

	mu sync.Mutex // guards what follows
	// last is what rules had counted at the last reading, by chain, without zeros. Chains that were written since
	// are left out. The inner maps never change.
	last counts
	// writing is the present write. written has the chains of writes since the present reading began, which may
	// have found their deleted rules. It is nil after a reading.
	writing []dataplane.Change
	written map[dataplane.ID]bool
	// lower is set if the last reading found a smaller count than the one before.
	lower bool
}

// counts are those of rules, by chain and place.
type counts map[dataplane.ID]map[place]uint64

// subject is what a total is of: connections to a service port or to one of its endpoints, or packets to a frontend
// that were refused for a reason.
type subject struct {
	port     string
	endpoint netip.AddrPort
	frontend service.Frontend
	reason   traffic.Reason
}

func newCounted() *counted {
	return &counted{
		last: make(counts), totals: make(map[subject]uint64), frontends: make(map[string]service.Frontend),
	}
}

// beginWrite is called before a write changes chains.
func (c *counted) beginWrite(changes []dataplane.Change) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writing = changes
	c.noteWritten()
}

// endWrite is called after it. If it did not land, chains may still have their former rules. Then they keep their last
// counts: otherwise, connections could count twice.
func (c *counted) endWrite(landed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.writing {
		if landed {
			delete(c.last, c.writing[i].ID)
		}
	}
	c.writing = nil
}

// beginReading is called before a reading.
func (c *counted) beginReading() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.written = make(map[dataplane.ID]bool)
	c.noteWritten()
}

func (c *counted) noteWritten() {
	for i := range c.writing {
		if c.written != nil {
			c.written[c.writing[i].ID] = true
		}
	}
}

// add ends a reading, and returns the totals.
func (c *counted) add(m *meter) traffic.Reading {
	before, written, usable := c.exchange(m)
	found := make(map[subject]bool)
	for chain, of := range m.live {
		for at, n := range of {
			s := m.subject(chain, at)
			found[s] = true
			if former := before[chain][at]; n >= former {
				n -= former
			}
			if n > 0 && usable && !written[chain] {
				c.grow(s, n)
			}
		}
	}
	c.forget(m, found)
	return c.reading(found)
}

// exchange returns the counts of the last reading, and the chains that were written during the present one. Their
// present counts mean nothing. The reading is usable if no count is smaller than before, or if the next reading
// confirms that. In the legacy variant, each write by any program resets the counters of the whole table, and
// restores those of the other rules a moment later.
func (c *counted) exchange(m *meter) (before counts, written map[dataplane.ID]bool, usable bool) {
	now := m.nonzero()
	c.mu.Lock()
	defer c.mu.Unlock()
	before, written = c.last, c.written
	c.written = nil
	if m.lower(before, written) && (len(written) > 0 || !c.lower) {
		c.lower = len(written) == 0
		return nil, nil, false
	}
	c.lower = false
	for chain := range written {
		delete(now, chain)
		if former, known := before[chain]; known {
			now[chain] = former
		}
	}
	c.last = now
	return before, written, true
}

// grow adds to the total of a subject, and to that of the service port of an endpoint.
func (c *counted) grow(s subject, n uint64) {
	c.totals[s] += n
	if s.endpoint.IsValid() {
		c.totals[subject{port: s.port}] += n
	}
}

// forget drops the totals of what two readings in a row did not find, and adds those of all others to found. One
// reading is not enough: it reads table by table, and another process may have removed the rules for a moment. A
// service port without endpoints, and refusals of a frontend, remain as long as something serves or refuses the
// frontend.
func (c *counted) forget(m *meter, found map[subject]bool) {
	maps.Copy(c.frontends, m.ports)
	for port, f := range c.frontends {
		found[subject{port: port}] = m.served[f]
	}
	missing := make(map[subject]bool)
	for s := range c.totals {
		switch {
		case found[s] || s.port == "" && m.served[s.frontend]:
		case c.missing[s]:
			delete(c.totals, s)
			continue
		default:
			missing[s] = true
		}
		found[s] = true
	}
	c.missing = missing
	maps.DeleteFunc(c.frontends, func(port string, _ service.Frontend) bool { return !found[subject{port: port}] })
}

// reading returns the totals of subjects.
func (c *counted) reading(found map[subject]bool) traffic.Reading {
	r := traffic.Reading{Frontends: make(map[service.Frontend]traffic.At), Endpoints: make(map[traffic.Pair]traffic.Counts)}
	for s, exists := range found {
		f, n := s.frontend, c.totals[s]
		if s.port != "" {
			f = c.frontends[s.port]
		}
		if !exists || f.Port == 0 {
			continue
		}
		sum := r.Frontends[f]
		switch {
		case s.endpoint.IsValid():
			pair := traffic.Pair{Frontend: f, Endpoint: s.endpoint}
			r.Endpoints[pair] = traffic.Counts{Connections: r.Endpoints[pair].Connections + n}
		case s.port != "":
			sum.Connections += n
		default:
			sum.Refused[s.reason] += n
		}
		r.Frontends[f] = sum
	}
	return r
}

// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"maps"
	"net/netip"
	"sync"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/traffic"
	"github.com/sluice-proxy/sluice/service"
)

// counted has totals, which grow by the difference between two readings. A write replaces all rules of a chain: new
// rules start at 0, and counts of the deleted rules since the last reading are lost. counted notes writes, because a
// new counter that exceeds the value of the deleted one before the next reading would look like the same counter.
type counted struct {
	// totals are those of subjects with traffic; missing are the subjects that the last reading did not find. Only
	// the reading goroutine uses them.
	totals  map[subject]uint64
	missing map[subject]bool
	// frontends has the frontend of each service port, by render.PortOf. Only the reading goroutine uses it.
	frontends map[string]service.Frontend

	mu sync.Mutex // guards the fields below
	// last has the counts of the last reading, by chain, without zeros and without chains that were written since.
	// The inner maps never change.
	last counts
	// writing is the current write. written has the chains of writes since the current reading began: the reading
	// may have found their deleted rules. It is nil between readings.
	writing []dataplane.Change
	written map[dataplane.ID]bool
	// lower is set if the last reading found a smaller count than the one before, without a write in between.
	lower bool
}

// counts are those of rules, by chain and place.
type counts map[dataplane.ID]map[place]uint64

// subject is what a total counts: connections to a service port or to one of its endpoints, or packets to a frontend
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

// endWrite is called after the write. If the write did not land, chains may still have their old rules. They then keep
// their last counts, because otherwise connections could count twice.
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

// exchange returns the counts of the last reading, and the chains that were written during the current one, whose
// counts are not reliable. A reading with a smaller count than before is usable only if the reading before it had one,
// too: in the legacy variant, each write by any program resets the counters of the whole table, and restores those of
// the other rules a moment later.
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

// forget drops the totals of subjects that two readings in a row did not find, and adds all other subjects to found.
// One reading is not enough, because it reads one table after the other, and another process may have removed the
// rules for a moment. The totals of a service port without endpoints, and the refusals of a frontend, remain as long
// as a rule serves or refuses the frontend.
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

// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"strings"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/iptables/render"
	"github.com/sluice-proxy/sluice/dataplane/traffic"
	"github.com/sluice-proxy/sluice/service"
)

// Traffic reads the counters of the rules. It may be called at any time, and delays no write. Its cost grows
// with the number of rules. Connections are counted by service port: the reading has the sum for all frontends
// of a port at one of them.
//
// The counts are lower bounds, and Since is zero: counts of a deleted rule since the last reading are lost.
func (w *Writer) Traffic(ctx context.Context) (traffic.Reading, error) {
	select {
	case w.reading <- struct{}{}:
		defer func() { <-w.reading }()
	case <-ctx.Done():
		return traffic.Reading{}, context.Cause(ctx)
	}
	w.counted.beginReading()
	m, err := readCounters(ctx, w.tool)
	if err != nil {
		return traffic.Reading{}, fmt.Errorf("read the counters of %s rules: %w", w.family, err)
	}
	return w.counted.add(m), nil
}

// countedTables are those with rules that count.
var countedTables = [...]render.Table{render.NAT, render.Filter}

// meter is one reading.
type meter struct {
	// live has the counters of the rules.
	live counts
	// ports has the lowest frontend of each service port, by render.PortOf; endpoints has the endpoint of each
	// chain that is for one endpoint.
	ports     map[string]service.Frontend
	endpoints map[string]netip.AddrPort
	// served are the frontends for which a rule jumps to a service port or refuses packets.
	served map[service.Frontend]bool
}

func readCounters(ctx context.Context, tool Tool) (*meter, error) {
	m := &meter{
		live: make(counts), ports: make(map[string]service.Frontend),
		endpoints: make(map[string]netip.AddrPort), served: make(map[service.Frontend]bool),
	}
	for _, table := range countedTables {
		printed, err := tool.SaveCounters(ctx, table)
		if err != nil {
			return nil, err
		}
		for line := range bytes.Lines(printed) {
			// The copy of a line lets the whole text be freed while names are kept.
			if name, c, ok := printedCounter(strings.TrimSuffix(string(line), "\n")); ok {
				m.note(render.ChainID(table, name), &c)
			}
		}
	}
	return m, nil
}

// note adds a rule of a chain to the reading.
func (m *meter) note(chain dataplane.ID, c *counter) {
	if port, f, ok := c.dispatches(chain); ok {
		m.served[f] = true
		if first, known := m.ports[port]; !known || f.Compare(first) < 0 {
			m.ports[port] = f
		}
	}
	if at, counts := c.at(chain); counts {
		if m.live[chain] == nil {
			m.live[chain] = make(map[place]uint64)
		}
		m.live[chain][at] += c.packets
		m.served[at.frontend] = true
	}
	if what, _ := render.CountedIn(chain); what == render.CountsSticky && c.endpoint.IsValid() {
		m.endpoints[chain.Name] = c.endpoint
	}
}

// nonzero returns the counters without those at 0, which most are.
func (m *meter) nonzero() counts {
	all := make(counts)
	for chain, of := range m.live {
		for at, n := range of {
			if n == 0 {
				continue
			}
			if all[chain] == nil {
				all[chain] = make(map[place]uint64)
			}
			all[chain][at] = n
		}
	}
	return all
}

// lower reports whether a rule has counted less than before, in a chain that was not written.
func (m *meter) lower(before counts, written map[dataplane.ID]bool) bool {
	for chain, of := range before {
		for at, former := range of {
			if n, exists := m.live[chain][at]; exists && n < former && !written[chain] {
				return true
			}
		}
	}
	return false
}

// subject returns the subject for which a rule of a chain counts.
func (m *meter) subject(chain dataplane.ID, at place) subject {
	what, _ := render.CountedIn(chain)
	switch {
	case what == render.CountsConnections && at.endpoint.IsValid():
		return subject{port: render.PortOf(chain.Name), endpoint: at.endpoint}
	case what == render.CountsConnections:
		return subject{port: render.PortOf(chain.Name), endpoint: m.endpoints[at.chain]}
	case what == render.CountsOutOfRange, at.chain != "": // denied sources
		return subject{frontend: at.frontend, reason: traffic.SourceRange}
	}
	return subject{frontend: at.frontend, reason: traffic.NoEndpoints}
}

// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/nftables/render"
	"github.com/sluice-proxy/sluice/dataplane/traffic"
	"github.com/sluice-proxy/sluice/internal/netlink"
	"github.com/sluice-proxy/sluice/internal/sleep"
	"github.com/sluice-proxy/sluice/service"
)

// unallocated is the chain that counts packets to ClusterIPs that no Service has.
var unallocated = dataplane.ID{Container: render.ContainerChain, Name: render.UnallocatedChain()}

// Traffic reads the counters of the table, over a separate socket: it may be called at any time, and delays
// no write. Its cost grows with the number of elements with counters. Without a table the reading is empty.
//
// A difference of two readings with the same Since is exact, except for connections that one CPU looks up at
// the moment in which another CPU replaces the element.
func (w *Writer) Traffic(ctx context.Context) (found traffic.Reading, err error) {
	err = w.aside(func(r *reader) (err error) {
		for range readings {
			m := &meter{
				reader: r, tally: w.config.Tally, versions: make(map[string]uint64), ports: make(map[string]service.Frontend),
				live: make(map[place]bool), found: traffic.Reading{Frontends: make(map[service.Frontend]traffic.At)},
			}
			since := m.tally.began()
			if found, err = m.read(ctx); err != nil {
				return err
			}
			if found.Since = m.tally.began(); found.Since.Equal(since) {
				return nil
			}
		}
		return errLively
	})
	if err != nil {
		return traffic.Reading{}, fmt.Errorf("read the counters of the %s table %s: %w", w.d.Family, render.TableName, err)
	}
	return found, nil
}

// readings limits the attempts at a reading, and at reading a set, if it changes during each attempt.
const readings = 50

var errLively = fmt.Errorf("they changed during each of %d readings", readings)

// meter is one reading.
type meter struct {
	*reader
	tally *Tally
	found traffic.Reading
	// versions are the versions of the sets that were read.
	versions map[string]uint64
	// ports has the lowest frontend of each service port with affinity.
	ports map[string]service.Frontend
	// live has the existing places.
	live map[place]bool
}

// place is a frontend, an endpoint of one, or an endpoint of a service port with affinity.
type place struct {
	port     string
	frontend service.Frontend
	endpoint netip.AddrPort
}

func (m *meter) isLive(set string, f service.Frontend, endpoint netip.AddrPort) bool {
	return m.live[place{render.PortOf(set), f, endpoint}]
}

func (m *meter) read(ctx context.Context) (traffic.Reading, error) {
	sets := make(map[string]map[service.Frontend]endpointTally)
	err := m.ask(ctx, unix.NFT_MSG_GETSET, true, inTable(0, ""), func(b []byte) {
		name := netlink.Find(b, unix.NFTA_SET_NAME).Text()
		if what := render.CountedIn(name); what != render.CountsNothing {
			sets[name] = nil
			if what == render.CountsEndpoints && m.found.Endpoints == nil {
				m.found.Endpoints = make(map[traffic.Pair]traffic.Counts)
			}
		}
	})
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return m.found, fmt.Errorf("list sets: %w", err)
	}
	for name := range sets {
		if sets[name], err = m.set(ctx, name); err != nil {
			return m.found, err
		}
	}
	for name, read := range sets {
		m.enter(name, read)
	}
	err = m.rules(ctx, inTable(unix.NFTA_RULE_CHAIN, unallocated.Name), func(_ string, attrs []byte) {
		for element := range netlink.Attrs(netlink.Find(attrs, unix.NFTA_RULE_EXPRESSIONS).Data) {
			m.found.Unallocated += render.ReadCounter(element.Data)
		}
	})
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return m.found, fmt.Errorf("list the rules of chain %s: %w", unallocated.Name, err)
	}
	m.tally.prune(m.versions, m.isLive)
	return m.found, nil
}

// set returns the counts of one set, including the carried ones.
func (m *meter) set(ctx context.Context, name string) (map[service.Frontend]endpointTally, error) {
	for range readings {
		if version, quiet := m.tally.version(name); quiet {
			read, whole, err := m.countersOf(ctx, name)
			if errors.Is(err, unix.ENOENT) {
				return nil, nil // it was deleted after the list
			}
			if err != nil {
				return nil, fmt.Errorf("list the elements of %s: %w", name, err)
			}
			if whole && m.tally.add(name, version, read) {
				m.versions[name] = version
				return read, nil
			}
		}
		if !sleep.For(ctx, time.Millisecond) {
			return nil, context.Cause(ctx)
		}
	}
	return nil, fmt.Errorf("elements of %s: %w", name, errLively)
}

// countersOf returns the counters in a set. They are not whole if an element occurs twice: the kernel then
// rebuilt the set during the list, which may lack another element.
func (m *meter) countersOf(ctx context.Context, name string) (read map[service.Frontend]endpointTally, whole bool, err error) {
	read, whole = make(map[service.Frontend]endpointTally), true
	port := render.PortOf(name)
	err = m.elements(ctx, true, inTable(unix.NFTA_SET_ELEM_LIST_SET, name), func(attrs []byte) {
		c, ok := render.ReadCount(name, attrs)
		if !ok {
			return
		}
		if read[c.Frontend] == nil {
			read[c.Frontend] = make(endpointTally, 1)
		}
		_, twice := read[c.Frontend][c.Endpoint]
		whole = whole && !twice
		read[c.Frontend][c.Endpoint] = c.Packets
		m.live[place{port, c.Frontend, c.Endpoint}] = true
		if first, known := m.ports[c.Port]; port == "" && c.Port != "" && (!known || c.Frontend.Compare(first) < 0) {
			m.ports[c.Port] = c.Frontend
		}
	})
	return read, whole, err
}

// enter adds the counts of a set's existing frontends and endpoints to the reading. With affinity, it adds the
// endpoints of a service port at the lowest of its frontends.
func (m *meter) enter(set string, read map[service.Frontend]endpointTally) {
	what, port := render.CountedIn(set), render.PortOf(set)
	for f, of := range read {
		for endpoint, n := range of {
			if !m.isLive(set, f, endpoint) {
				continue
			}
			if what != render.CountsEndpoints {
				m.enterFrontend(what, f, n)
				continue
			}
			pair := traffic.Pair{Frontend: f, Endpoint: endpoint}
			if port != "" {
				pair.Frontend = m.ports[port]
			}
			counts := m.found.Endpoints[pair]
			counts.Connections += n
			m.found.Endpoints[pair] = counts
		}
	}
}

func (m *meter) enterFrontend(what render.Counted, f service.Frontend, n uint64) {
	at := m.found.Frontends[f]
	switch what {
	case render.CountsConnections:
		at.Connections += n
	case render.CountsNoEndpoints:
		at.Refused[traffic.NoEndpoints] += n
	case render.CountsOutOfRange:
		at.Refused[traffic.SourceRange] += n
	}
	m.found.Frontends[f] = at
}

package kernel

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/iptables/render"
	"github.com/sluice-proxy/sluice/dataplane/traffic"
	"github.com/sluice-proxy/sluice/internal/netlink"
	"github.com/sluice-proxy/sluice/internal/sleep"
	"github.com/sluice-proxy/sluice/service"
)

// errNotAnnounced means that the writer does not watch, so that it does not know what deleted rules counted.
var errNotAnnounced = errors.New("changes of the rules are not watched yet")

// Traffic reads the counters of the rules. It may be called at any time, and delays no write. What it costs
// grows with the rules. Connections are counted by service port: those to all frontends of a port are at one
// of them.
//
// In the nft variant, a difference of two readings with the same Since is exact, except for a connection that
// one processor looks up in the very moment in which another one replaces its rule. In the legacy variant, it
// is a lower bound, and Since is zero: rewritten rules begin again from 0, and what they counted after the
// reading before is lost.
func (w *Writer) Traffic(ctx context.Context) (traffic.Reading, error) {
	select {
	case w.reading <- struct{}{}:
		defer func() { <-w.reading }()
	case <-ctx.Done():
		return traffic.Reading{}, context.Cause(ctx)
	}
	m := w.newMeter()
	since, turns := m.tally.began()
	var err error
	switch saver, ok := w.tool.(counterSaver); {
	case w.ownWrites != nil && since.IsZero():
		err = errNotAnnounced
	case w.ownWrites != nil:
		err = m.list(ctx)
	case ok:
		err = m.save(ctx, saver, turns)
	default:
		err = errors.ErrUnsupported
	}
	if err != nil {
		return traffic.Reading{}, fmt.Errorf("read the counters of %s rules: %w", w.family, err)
	}
	found := m.sum()
	m.tally.prune(turns, m.ports, m.fate)
	if found.Since, _ = m.tally.began(); w.ownWrites != nil && found.Since.IsZero() {
		return traffic.Reading{}, errNotAnnounced
	}
	return found, nil
}

// counterSaver is an optional interface of a tool that prints counters.
type counterSaver interface {
	// SaveCounters is Tool.Save with counters.
	SaveCounters(ctx context.Context, table render.Table) ([]byte, error)
}

// countedTables are those with rules that count.
var countedTables = [...]render.Table{render.NAT, render.Filter}

// meter is one reading.
type meter struct {
	tally  *tally
	family uint8
	socket *netlink.Socket
	// live is what the rules have counted, sums also what is carried.
	live, sums counters
	// ports has the least frontend that leads to a service port, by render.PortOf, and endpoints the endpoint
	// of a chain for one.
	ports     map[string]service.Frontend
	endpoints map[string]netip.AddrPort
	// earlier has frontends that led to service ports before.
	earlier map[string]service.Frontend
	// served are the frontends that are led somewhere or refused, active the endpoints of service ports.
	served map[service.Frontend]bool
	active map[string]map[place]bool
}

func (w *Writer) newMeter() *meter {
	return &meter{
		tally: w.tally, family: netfilterFamily[w.family], live: make(counters), sums: make(counters),
		ports: make(map[string]service.Frontend), endpoints: make(map[string]netip.AddrPort), served: make(map[service.Frontend]bool),
	}
}

// note notes what a rule of a chain shows.
func (m *meter) note(chain dataplane.ID, c *counter) {
	if port, f, ok := c.dispatches(chain); ok {
		m.served[f] = true
		if first, known := m.ports[port]; !known || f.Compare(first) < 0 {
			m.ports[port] = f
		}
	}
	if at, counts := c.at(chain); counts {
		m.live[chain][at] += c.packets
		m.served[at.frontend] = true
	}
	if what, _ := render.CountedIn(chain); what == render.CountsSticky && c.endpoint.IsValid() {
		m.endpoints[chain.Name] = c.endpoint
	}
}

// save reads the rules with iptables-save.
func (m *meter) save(ctx context.Context, tool counterSaver, turns uint64) error {
	for _, table := range countedTables {
		printed, err := tool.SaveCounters(ctx, table)
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(printed)) {
			name, c, ok := printedCounter(strings.TrimSuffix(line, "\n"))
			if !ok {
				continue
			}
			chain := render.ChainID(table, name)
			if m.live[chain] == nil {
				m.live[chain] = make(map[place]uint64)
			}
			m.note(chain, &c)
		}
	}
	m.sums = m.tally.grown(turns, m.live)
	return nil
}

// list reads the rules with netlink, chain by chain.
func (m *meter) list(ctx context.Context) (err error) {
	if m.socket, err = netlink.Open(netlink.Config{Protocol: unix.NETLINK_NETFILTER, ReceiveBytes: 1 << 20}); err != nil {
		return err
	}
	defer m.socket.Close() //nolint:errcheck // opened for reading, nothing can be lost
	var chains []dataplane.ID
	err = m.repeat(ctx, func() (bool, error) {
		chains = nil
		_, err := m.ask(ctx, unix.NFT_MSG_GETCHAIN, unix.NLM_F_DUMP, nil, func(attrs []byte) {
			table := netlink.Find(attrs, unix.NFTA_CHAIN_TABLE).Text()
			chain := dataplane.ID{Container: table, Name: netlink.Find(attrs, unix.NFTA_CHAIN_NAME).Text()}
			if what, _ := render.CountedIn(chain); what != render.CountsNothing {
				chains = append(chains, chain)
			}
		})
		return !errors.Is(err, netlink.ErrInterrupted), ignore(err, netlink.ErrInterrupted)
	})
	if err != nil {
		return err
	}
	for _, chain := range chains {
		if err := m.repeat(ctx, func() (bool, error) { return m.chain(ctx, chain) }); err != nil {
			return fmt.Errorf("chain %s: %w", chain.Name, err)
		}
	}
	// What was deleted before this must have been announced.
	err = m.repeat(ctx, func() (bool, error) {
		generation, err := m.generation(ctx)
		_, ok := m.tally.plus(dataplane.ID{}, generation, nil)
		return ok, err
	})
	m.tally.rest(m.sums)
	return err
}

// chain reads the rules of one chain. It reports false if they have to be read again.
func (m *meter) chain(ctx context.Context, chain dataplane.ID) (done bool, err error) {
	request := netlink.AppendText(nil, unix.NFTA_RULE_TABLE, chain.Container)
	request = netlink.AppendText(request, unix.NFTA_RULE_CHAIN, chain.Name)
	var rules []counter
	generation, err := m.ask(ctx, unix.NFT_MSG_GETRULE, unix.NLM_F_DUMP, request, func(attrs []byte) {
		rules = append(rules, announcedCounter(attrs))
	})
	switch {
	case errors.Is(err, unix.ENOENT):
		return true, nil
	case errors.Is(err, netlink.ErrInterrupted):
		return false, nil
	case err == nil && len(rules) == 0:
		generation, err = m.generation(ctx)
	}
	if err != nil {
		return false, err
	}
	m.live[chain] = make(map[place]uint64, len(rules))
	for i := range rules {
		m.note(chain, &rules[i])
	}
	m.sums[chain], done = m.tally.plus(chain, generation, m.live[chain])
	return done, nil
}

// readings bounds the attempts to read what changes meanwhile.
const readings = 200

// repeat calls attempt until it is done.
func (m *meter) repeat(ctx context.Context, attempt func() (done bool, err error)) error {
	for range readings {
		if done, err := attempt(); done || err != nil {
			return err
		}
		if !sleep.For(ctx, time.Millisecond) {
			return context.Cause(ctx)
		}
	}
	return fmt.Errorf("they changed during each of %d readings", readings)
}

func ignore(err, ignored error) error {
	if errors.Is(err, ignored) {
		return nil
	}
	return err
}

// generation returns the low bits of the present generation.
func (m *meter) generation(ctx context.Context) (uint16, error) {
	generation, err := generation(ctx, m.socket)
	return uint16(generation), err
}

// generation asks the kernel for the present generation of nf_tables.
func generation(ctx context.Context, socket *netlink.Socket) (generation uint32, err error) {
	b, mark := netlink.BeginNetfilter(nil, unix.NFNL_SUBSYS_NFTABLES, unix.NFT_MSG_GETGEN, unix.NLM_F_ACK, unix.NFPROTO_UNSPEC)
	err = socket.Ask(ctx, netlink.Finish(b, mark), func(reply netlink.Message) error {
		if n, ok := reply.Netfilter(unix.NFNL_SUBSYS_NFTABLES); ok {
			generation = netlink.GenerationID(n)
		}
		return nil
	})
	return generation, err
}

// ask calls each with the attributes of each message of the reply, and returns the generation that they are of.
func (m *meter) ask(ctx context.Context, kind, flags uint16, attrs []byte, each func(attrs []byte)) (generation uint16, err error) {
	b, mark := netlink.BeginNetfilter(nil, unix.NFNL_SUBSYS_NFTABLES, kind, flags, m.family)
	err = m.socket.Ask(ctx, netlink.Finish(append(b, attrs...), mark), func(reply netlink.Message) error {
		if n, ok := reply.Netfilter(unix.NFNL_SUBSYS_NFTABLES); ok {
			generation = n.Generation
			each(n.Attrs)
		}
		return nil
	})
	return generation, err
}

// sum returns what all chains have counted.
func (m *meter) sum() traffic.Reading {
	found := traffic.Reading{Frontends: make(map[service.Frontend]traffic.At), Endpoints: make(map[traffic.Pair]traffic.Counts)}
	m.earlier = m.tally.earlier()
	m.active = make(map[string]map[place]bool)
	for chain, live := range m.live {
		port := render.PortOf(chain.Name)
		if m.active[port] == nil {
			m.active[port] = make(map[place]bool)
		}
		for at := range live {
			m.active[port][at] = true
		}
	}
	for chain, of := range m.sums {
		what, _ := render.CountedIn(chain)
		for at, n := range of {
			f := at.frontend
			if what == render.CountsConnections {
				var known bool
				if f, known = m.frontendOf(render.PortOf(chain.Name)); !known {
					continue
				}
			}
			sum := found.Frontends[f]
			counts := what
			if counts == render.CountsNoEndpoints && at.chain != "" {
				counts = render.CountsOutOfRange // of denied sources
			}
			switch counts {
			case render.CountsConnections:
				sum.Connections += n
				m.enter(found.Endpoints, f, render.PortOf(chain.Name), at, n)
			case render.CountsNoEndpoints:
				sum.Refused[traffic.NoEndpoints] += n
			case render.CountsOutOfRange:
				sum.Refused[traffic.SourceRange] += n
			default:
				continue
			}
			found.Frontends[f] = sum
		}
	}
	return found
}

// enter adds the connections of an endpoint that exists.
func (m *meter) enter(to map[traffic.Pair]traffic.Counts, f service.Frontend, port string, at place, n uint64) {
	endpoint := at.endpoint
	if !endpoint.IsValid() {
		endpoint = m.endpoints[at.chain]
	}
	if endpoint.IsValid() && m.active[port][at] {
		pair := traffic.Pair{Frontend: f, Endpoint: endpoint}
		to[pair] = traffic.Counts{Connections: to[pair].Connections + n}
	}
}

// frontendOf returns a frontend of a service port, which may have no endpoints any more.
func (m *meter) frontendOf(port string) (service.Frontend, bool) {
	f, ok := m.ports[port]
	if !ok {
		f, ok = m.earlier[port]
	}
	return f, ok
}

// fate is for tally.prune.
func (m *meter) fate(chain dataplane.ID, at place) (kept place, ok bool) {
	if what, _ := render.CountedIn(chain); what != render.CountsConnections {
		return at, m.served[at.frontend]
	}
	port := render.PortOf(chain.Name)
	if f, known := m.frontendOf(port); !known || !m.served[f] {
		return gone, false
	}
	if m.active[port][at] {
		return at, true
	}
	return gone, true
}

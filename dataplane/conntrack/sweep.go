// SPDX-License-Identifier: Apache-2.0

package conntrack

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/sluice-proxy/sluice/internal/netlink"
	"github.com/sluice-proxy/sluice/service"
)

const (
	// filtersMax is the number of filters up to which the sweep lists the flows of each one
	// separately. Each such list makes the kernel walk its whole table, which costs about a
	// sixth of listing every flow (60 and 380 ms at 200,000 flows, Linux 6.18).
	filtersMax = 5
	// removeBatch is the number of flows that one request deletes.
	removeBatch = 128
	// listings bounds the attempts at a list that is interrupted.
	listings = 6
)

// sweep cleans the pending frontends of a table once. It holds at most removeBatch flows,
// however many there are.
type sweep struct {
	table    *table
	expected *expectations
	kernel   kernel
	onNode   func(netip.Addr) bool
	// owned reports whether a Service has a destination by the newest API objects; nil if that is unknown.
	owned func(destination) bool
	// host has the addresses of the host. It is nil until onHost reads them.
	host map[netip.Addr]bool
	// began is the time of the sweep.
	began time.Time
	// stale has the identities of flows to delete, and blame why each one is stale.
	stale [][]byte
	blame []blame
	// space is the memory of the identities in stale.
	space []byte
	// pressed has the identities of flows of answers that press deletes; see again.
	pressed [][]byte
	// refused counts the flows that the kernel did not delete, and refusal is the reason
	// for the last one.
	refused int
	refusal error

	result Swept
}

// blame is why a flow is stale: the Service whose change made it so, and the leaver if the flow leads to a due one.
type blame struct {
	by     service.Key
	leaver *leaver
}

// newSweep prepares a sweep. answering has the addresses on which node ports answer.
func newSweep(t *table, e *expectations, k kernel, family service.Family, answering service.NodePortAddresses) (*sweep, error) {
	s := &sweep{table: t, expected: e, kernel: k, began: time.Now(), result: Swept{Family: family, Frontends: t.waiting()}}
	on := map[netip.Addr]bool{}
	addresses := answering.Addresses
	if answering.All {
		var err error
		if addresses, err = k.addresses(); err != nil {
			return nil, err
		}
	}
	for _, a := range addresses {
		on[a] = true
	}
	s.onNode = func(a netip.Addr) bool { return on[a] || answering.All && a.IsLoopback() }
	return s, nil
}

// run sweeps. Frontends that are clean are no longer pending, even if the rest fails.
func (s *sweep) run(ctx context.Context) error {
	defer func() { s.result.Cut = s.table.drains.finish() }()
	for _, only := range s.questions() {
		honoured, err := s.list(ctx, only)
		if err != nil {
			return err
		}
		if s.refusal != nil {
			return fmt.Errorf("cannot delete %d stale flows: %w", s.refused, s.refusal)
		}
		if !honoured { // the kernel listed every flow
			only = filter{}
		}
		if honoured && only.source {
			continue // the filters by destination cover the same destinations
		}
		maps.DeleteFunc(s.table.pending, func(f frontend, _ service.Key) bool { return only.covers(udpTo(f)) })
		maps.DeleteFunc(s.table.checks, func(d destination, _ check) bool { return only.covers(d) })
		maps.DeleteFunc(s.table.drains.looks, func(d destination, _ look) bool { return only.covers(d) })
		if !honoured {
			return nil
		}
	}
	return nil
}

// questions returns filters that together select all flows to judge, those by source first. If it would need more than
// filtersMax filters, it returns one that selects all flows, or all UDP flows if no others are to be judged.
func (s *sweep) questions() []filter {
	var sources, all []filter
	add := func(d destination) (few bool) {
		s.table.steps++
		if !slices.ContainsFunc(all, func(f filter) bool { return f.covers(d) }) {
			all = append(all, filterFor(d))
		}
		return len(sources)+len(all) <= filtersMax
	}
	for d := range s.table.drains.looks {
		if !add(d) {
			return []filter{{}}
		}
	}
	for d := range s.table.checks {
		if few := add(d); d.addr.IsValid() && !slices.ContainsFunc(sources, func(f filter) bool { return f.covers(d) }) {
			sources = append(sources, filterFor(d).bySource())
		} else if few {
			continue
		}
		if len(sources)+len(all) > filtersMax {
			return []filter{{}}
		}
	}
	for f := range s.table.pending {
		switch {
		case add(udpTo(f)):
		case len(s.table.checks)+len(s.table.drains.looks) > 0:
			return []filter{{}}
		default:
			return []filter{{destination: destination{protocol: protocolUDP}}}
		}
	}
	return append(sources, all...)
}

// list examines the flows that a filter lets through and reports whether the kernel
// honored the filter. If the list is interrupted, it starts over, without the flows that
// it has already deleted.
func (s *sweep) list(ctx context.Context, only filter) (honoured bool, err error) {
	for range listings {
		honoured, err = s.kernel.flows(ctx, only, s.examine)
		if err == nil {
			return honoured, s.flush()
		}
		if !errors.Is(err, netlink.ErrInterrupted) && !errors.Is(err, netlink.ErrUnanswered) {
			return false, err
		}
	}
	return false, fmt.Errorf("%d times: %w", listings, err)
}

// examine judges one flow.
func (s *sweep) examine(f *flow) error {
	s.result.Flows++
	var why blame
	by, stale := s.judge(f)
	reversed := false
	if !stale {
		var err error
		if by, reversed, stale, err = s.bypasses(f); err != nil {
			return err
		}
	}
	if why.by = by; !stale {
		look, leaver := s.table.drains.judge(f, s.nodePort, s.began)
		if leaver == nil || s.expected.wants(look.of.key, look.port, f.answerer) {
			return nil
		}
		why = blame{look.of.key, leaver}
	}
	if !f.translated() {
		s.table.stray(f, why.by)
		if identity := f.answers(reversed); identity != nil && len(s.pressed) < pressMax {
			s.pressed = append(s.pressed, identity)
		}
	}
	at := len(s.space)
	s.space = append(s.space, f.identity...)
	s.stale = append(s.stale, s.space[at:])
	s.blame = append(s.blame, why)
	if len(s.stale) < removeBatch {
		return nil
	}
	return s.flush()
}

// judge reports whether a flow is stale, and because of which Service.
func (s *sweep) judge(f *flow) (by service.Key, stale bool) {
	c, subject := s.table.subject(f, s.nodePort)
	if subject && !c.admits(f.source.Addr()) {
		return c.by, true
	}
	if f.protocol == protocolUDP {
		by, stale = s.table.judge(f, s.onNode)
	}
	if !stale && subject && !f.translated() {
		by, stale = c.by, true
	}
	return by, stale && !s.expected.lead(f)
}

// bypasses reports whether an untranslated flow met no rule, and which Service has its frontend. Such a flow is an
// answered one to a ClusterIP, where only the Service may answer, or it consists of answers to packets that met no rule
// (reversed): the kernel would not translate the client's next packets, because they belong to this flow. Only the node
// itself can send first from a frontend: its processes may use a node port, or a port of an external IP that is an
// address of the node. Another host may have an external IP, so bypasses ignores flows to external IPs.
func (s *sweep) bypasses(f *flow) (by service.Key, reversed, is bool, err error) {
	if f.translated() {
		return by, false, false, nil
	}
	if by, o, found := s.checked(f.to()); found && o.internal && f.replied {
		if local, err := s.onHost(f.to().addr); err != nil || !local {
			return by, false, !local, err
		}
	}
	from := f.from()
	by, o, found := s.checked(from)
	if found && !o.internal {
		if local, err := s.onHost(from.addr); local || err != nil {
			return by, false, false, err
		}
	}
	return by, found, found, nil
}

// checked returns the opening at a destination that has a check, unless something else may answer there.
func (s *sweep) checked(d destination) (by service.Key, o opening, found bool) {
	c, found := s.table.checks[d]
	if !found {
		c, found = s.table.checks[destination{addr: d.addr}]
	}
	if found {
		of := s.table.openings[c.by]
		o, found = of.at(d)
	}
	return c.by, o, found && !o.lent
}

// onHost reports whether an address is one of the host's.
func (s *sweep) onHost(a netip.Addr) (bool, error) {
	if s.host == nil {
		addresses, err := s.kernel.addresses()
		if err != nil {
			return false, err
		}
		s.host = map[netip.Addr]bool{}
		for _, a := range addresses {
			s.host[a] = true
		}
	}
	return s.host[a] || a.IsLoopback(), nil
}

// nodePort reports whether a flow to a destination asks for a node port: the address has node ports, and no Service,
// even one whose view has not arrived yet, has the destination itself, which takes precedence in the kernel's rules.
func (s *sweep) nodePort(to destination) bool {
	return s.onNode(to.addr) && s.table.claims[to] == 0 && (s.owned == nil || !s.owned(to))
}

// flush deletes the stale flows.
func (s *sweep) flush() error {
	if len(s.stale) == 0 {
		return nil
	}
	outcomes, err := s.kernel.remove(s.stale)
	for i, outcome := range outcomes {
		switch {
		case outcome == nil:
			if s.result.Services == nil {
				s.result.Services = map[service.Key]int{}
			}
			s.result.Services[s.blame[i].by]++
			s.result.Deleted++
			if l := s.blame[i].leaver; l != nil {
				l.cut++
			}
		case !errors.Is(outcome, errGone):
			s.refused, s.refusal = s.refused+1, outcome
		}
	}
	s.stale, s.blame, s.space = s.stale[:0], s.blame[:0], s.space[:0]
	return err
}

// kernel is what a sweep needs of the kernel's table of one family. netfilter implements it;
// tests use a fake.
type kernel interface {
	// flows calls each with every flow that the filter lets through, as it arrives, and
	// reports whether the kernel honored the filter: an old kernel lists every flow. An error
	// may come after some flows. If it matches netlink.ErrInterrupted or ErrUnanswered, the
	// list may lack flows, and another attempt usually succeeds.
	flows(ctx context.Context, only filter, each func(*flow) error) (honoured bool, err error)
	// remove deletes flows by their identities and returns an error for each: nil if it was
	// deleted, errGone if it did not exist, another error if it remains. If the call itself
	// fails, the outcome is unknown.
	remove(identities [][]byte) ([]error, error)
	// addresses lists the addresses of the host.
	addresses() ([]netip.Addr, error)
	close() error
}

// errGone means that a flow ended before it could be deleted.
var errGone = errors.New("conntrack: the flow no longer exists")

// filter selects flows by protocol, address and port of their destination, or source. A zero field matches any value.
type filter struct {
	destination
	source bool
}

// filterFor returns the narrowest filter for the flows to a destination. It omits IPv6
// addresses: the kernel lists the flows to every address except that one
// (ctnetlink_filter_match_tuple, Linux 5.8 to 6.18 at least).
func filterFor(d destination) filter {
	if d.addr.Is6() {
		d.addr = netip.Addr{}
	}
	return filter{destination: d}
}

// bySource returns the filter for flows that come from the filter's destination.
func (f filter) bySource() filter {
	f.source = f.destination != destination{}
	return f
}

// lets reports whether the filter lets a flow through.
func (f filter) lets(one *flow) bool {
	if f.source {
		return f.covers(one.from())
	}
	return f.covers(one.to())
}

// covers reports whether the filter lets all flows to a destination through; if it filters by source, all from there.
func (f filter) covers(d destination) bool {
	return (f.protocol == 0 || f.protocol == d.protocol) && (f.port == 0 || f.port == d.port) &&
		(!f.addr.IsValid() || f.addr == d.addr)
}

// udpTo returns a frontend of UDP as a destination.
func udpTo(f frontend) destination { return destination{f.Addr(), f.Port(), protocolUDP} }

// flow is the part of an entry of the kernel's table that a sweep needs. The source address to
// which a flow is masqueraded is not part of it.
type flow struct {
	protocol uint8
	// source is where the client sends from.
	source netip.AddrPort
	// destination is where the client sends to.
	destination netip.AddrPort
	// answerer is where answers come from: the endpoint if the destination was translated,
	// otherwise the destination itself.
	answerer netip.AddrPort
	// replied is set if there has been an answer.
	replied bool
	// identity has the attributes by which the kernel deletes exactly this entry. It is valid
	// during the call that passes the flow.
	identity []byte
}

// to returns where the client sends to.
func (f *flow) to() destination {
	return destination{f.destination.Addr(), f.destination.Port(), f.protocol}
}

// from returns where the client sends from.
func (f *flow) from() destination { return destination{f.source.Addr(), f.source.Port(), f.protocol} }

// translated reports whether the flow leads to another destination than its client sends to.
func (f *flow) translated() bool { return f.answerer != f.destination }

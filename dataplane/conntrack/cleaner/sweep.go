// SPDX-License-Identifier: Apache-2.0

package cleaner

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane/conntrack"
	"github.com/sluice-proxy/sluice/internal/host/hostaddress"
	"github.com/sluice-proxy/sluice/service"
)

const (
	// filtersMax is the number of pending frontends up to which the sweep lists the flows
	// of each by itself. Each such list makes the kernel walk its whole table, which costs
	// about a sixth of listing every flow (60 and 380 ms at 200,000 flows, Linux 6.18).
	filtersMax = 5
	// removeBatch is the number of flows that one request deletes.
	removeBatch = 128
)

// sweep cleans the pending frontends of a table once. It holds at most removeBatch flows,
// however many there are.
type sweep struct {
	table    *table
	expected *expectations
	kernel   kernel
	onNode   func(netip.Addr) bool
	// owned reports whether a Service has a destination, as far as the API says; nil if that is not known.
	owned func(destination) bool
	// host are the addresses of the host. It is nil until they matter.
	host map[netip.Addr]bool
	// began is the time of the sweep.
	began time.Time
	// stale are identities of flows to delete, and blame says whose change made each stale.
	stale []conntrack.Description
	blame []blame
	// space is what stale points into.
	space []byte
	// pressed are the identities of flows of answers; see again.
	pressed []conntrack.Description
	// refused counts the flows that the kernel did not delete, and refusal is the reason
	// for the last one.
	refused int
	refusal error

	result Swept
}

// blame is why a flow is stale: a Service's change, and the endpoint that has left if its deadline is the reason.
type blame struct {
	by     service.Key
	leaver *leaver
}

// newSweep prepares a sweep. answering says where node ports answer.
func newSweep(t *table, e *expectations, k kernel, family service.Family, answering service.NodePortAddresses) (*sweep, error) {
	s := &sweep{table: t, expected: e, kernel: k, began: time.Now(), result: Swept{Family: family, Frontends: t.waiting()}}
	on := map[netip.Addr]bool{}
	addresses := answering.Addresses
	if answering.All {
		var err error
		if addresses, err = k.Addresses(); err != nil {
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
		if honoured && only.Source {
			continue // the same destinations follow
		}
		maps.DeleteFunc(s.table.pending, func(f frontend, _ service.Key) bool { return only.Covers(udpTo(f)) })
		maps.DeleteFunc(s.table.checks, func(d destination, _ check) bool { return only.Covers(d) })
		maps.DeleteFunc(s.table.drains.looks, func(d destination, _ look) bool { return only.Covers(d) })
		if !honoured {
			return nil
		}
	}
	return nil
}

// questions returns filters that together let all flows through that are to be judged, those by source first. It stops
// as soon as there are too many.
func (s *sweep) questions() []filter {
	var sources, all []filter
	add := func(d destination) (few bool) {
		s.table.steps++
		if !slices.ContainsFunc(all, func(f filter) bool { return f.Covers(d) }) {
			all = append(all, conntrack.FilterFor(d))
		}
		return len(sources)+len(all) <= filtersMax
	}
	for d := range s.table.drains.looks {
		if !add(d) {
			return []filter{{}}
		}
	}
	for d := range s.table.checks {
		if few := add(d); d.Addr.IsValid() && !slices.ContainsFunc(sources, func(f filter) bool { return f.Covers(d) }) {
			sources = append(sources, conntrack.FilterFor(d).BySource())
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
			return []filter{{Destination: destination{Protocol: unix.IPPROTO_UDP}}}
		}
	}
	return append(sources, all...)
}

// list examines the flows that a filter lets through and reports whether the kernel
// honoured the filter. It begins again if the list is interrupted; flows that it deleted
// do not come back.
func (s *sweep) list(ctx context.Context, only filter) (honoured bool, err error) {
	err = conntrack.Steadily(ctx, func() error {
		honoured, err = s.kernel.Each(ctx, only, s.examine)
		return err
	})
	if err == nil {
		err = s.flush()
	}
	return honoured, err
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
		if leaver == nil || s.expected.wants(look.of.key, look.port, f.Answerer) {
			return nil
		}
		why = blame{look.of.key, leaver}
	}
	if !f.Translated() {
		s.table.stray(f, why.by)
		if identity := f.Description.Answers(reversed); identity != nil && len(s.pressed) < pressMax {
			s.pressed = append(s.pressed, identity)
		}
	}
	at := len(s.space)
	s.space = append(s.space, f.Description...)
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
	if subject && !c.admits(f.From.Addr()) {
		return c.by, true
	}
	if f.Protocol == unix.IPPROTO_UDP {
		by, stale = s.table.judge(f, s.onNode)
	}
	if !stale && subject && !f.Translated() {
		by, stale = c.by, true
	}
	return by, stale && !s.expected.lead(f)
}

// bypasses reports whether a flow that is answered met no rule, and which Service has its frontend. Either it is a
// connection to a ClusterIP, where only the Service answers, or it consists of answers to packets that met no rule
// (reversed): address translation would never see the client's next packets, because they belong to it. No host sends
// first from a frontend, except for the host itself: a node port, or an external IP that is an address of the host, may
// be a process's own port. A host with the external IP may be elsewhere, so connections to it are left alone.
func (s *sweep) bypasses(f *flow) (by service.Key, reversed, is bool, err error) {
	if f.Translated() {
		return by, false, false, nil
	}
	if by, o, found := s.checked(f.Destination()); found && o.internal && f.Replied {
		if local, err := s.onHost(f.Destination().Addr); err != nil || !local {
			return by, false, !local, err
		}
	}
	from := f.Source()
	by, o, found := s.checked(from)
	if found && !o.internal {
		if local, err := s.onHost(from.Addr); local || err != nil {
			return by, false, false, err
		}
	}
	return by, found, found, nil
}

// checked returns the opening at a destination to look at, unless others may answer there.
func (s *sweep) checked(d destination) (by service.Key, o opening, found bool) {
	c, found := s.table.checks[d]
	if !found {
		c, found = s.table.checks[destination{Addr: d.Addr}]
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
		addresses, err := s.kernel.Addresses()
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

// nodePort reports whether a flow to a destination asks for a node port: the address has node ports, and no Service has
// the destination itself, which takes precedence in the kernel's rules. A Service whose view has not arrived yet counts.
func (s *sweep) nodePort(to destination) bool {
	return s.onNode(to.Addr) && s.table.claims[to] == 0 && (s.owned == nil || !s.owned(to))
}

// flush deletes the stale flows.
func (s *sweep) flush() error {
	if len(s.stale) == 0 {
		return nil
	}
	outcomes, err := s.kernel.Delete(s.stale)
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
		case !errors.Is(outcome, conntrack.ErrGone):
			s.refused, s.refusal = s.refused+1, outcome
		}
	}
	s.stale, s.blame, s.space = s.stale[:0], s.blame[:0], s.space[:0]
	return err
}

// kernel is what a sweep needs of the kernel. node is the real one.
type kernel interface {
	// Each, Delete and Close are those of conntrack.Kernel.
	Each(ctx context.Context, only filter, each func(*flow) error) (honoured bool, err error)
	Delete(entries []conntrack.Description) ([]error, error)
	Close() error
	// Addresses lists the addresses of the host.
	Addresses() ([]netip.Addr, error)
}

// udpTo returns a frontend of UDP as a destination.
func udpTo(f frontend) destination {
	return destination{Addr: f.Addr(), Port: f.Port(), Protocol: unix.IPPROTO_UDP}
}

// What a sweep sees of the kernel's table.
type (
	flow        = conntrack.Entry
	destination = conntrack.Destination
	filter      = conntrack.Filter
)

// node is the connection table of the kernel, and the addresses of the host.
type node struct{ *conntrack.Kernel }

// ipvsDevice has the addresses of Services in IPVS mode. They are not the host's own.
const ipvsDevice = "kube-ipvs0"

// Addresses implements kernel.
func (n node) Addresses() (all []netip.Addr, err error) {
	err = n.Inside(func() error {
		all, err = hostaddress.ListWithout(ipvsDevice)
		return err
	})
	return all, err
}

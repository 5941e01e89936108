// SPDX-License-Identifier: Apache-2.0

package cleaner

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane/conntrack"
	"github.com/sluice-proxy/sluice/internal/host/hostaddress"
	"github.com/sluice-proxy/sluice/service"
)

const (
	// filtersMax is the maximum number of filters with which a sweep lists flows. For each filter, the kernel walks its
	// whole table, which takes about a sixth of the time for a list of all flows (60 and 380 ms with 200,000 flows,
	// Linux 6.18).
	filtersMax = 5
	// removeBatch is the number of flows that one request deletes.
	removeBatch = 128
)

type filter = conntrack.Filter

// kernel is the part of the kernel that a sweep uses. Its implementation is node.
type kernel interface {
	// Each, Delete and Close are the methods of conntrack.Kernel.
	Each(ctx context.Context, only filter, each func(*flow) error) (honoured bool, err error)
	Delete(entries []conntrack.Description) ([]error, error)
	Close() error
	// Addresses lists the addresses of the host.
	Addresses() ([]netip.Addr, error)
}

// node is the connection table of the kernel, and the addresses of the host.
type node struct{ *conntrack.Kernel }

// ipvsDevice has the addresses of Services in IPVS mode, which do not belong to the host.
const ipvsDevice = "kube-ipvs0"

// Addresses implements kernel.
func (n node) Addresses() (all []netip.Addr, err error) {
	err = n.Inside.Do(func() error {
		all, err = hostaddress.ListWithout(ipvsDevice)
		return err
	})
	return all, err
}

// sweep is one attempt at the pending work of a table. It keeps at most removeBatch flows, regardless of their number.
type sweep struct {
	table  *table
	todo   *todo
	kernel kernel
	// answering contains the addresses of node ports. owned reports whether a Service owns a destination according to the
	// API objects; it may be nil.
	answering service.NodePortAddresses
	owned     func(destination) bool
	// host contains the addresses of the host, if the sweep needs them.
	host map[netip.Addr]bool
	// began is the start of the sweep.
	began time.Time
	// stale identifies the flows to delete, and blame contains the reason for each.
	stale []conntrack.Description
	blame []blame
	// space is the memory of stale.
	space []byte
	// astray contains the destinations at which the sweep found flows of clients that met no rule, each with its Service.
	// pressed identifies flows of answers; see again.
	astray  map[destination]service.Key
	pressed []conntrack.Description
	// refused counts the flows that the kernel did not delete, and refusal is the error for the last one.
	refused int
	refusal error
	// steps counts the steps to choose filters; see table.
	steps int

	result Swept
}

// blame is the reason to delete a flow: the change of a Service, or the drain deadline of a leaver.
type blame struct {
	by     service.Key
	leaver *leaver
	// reversed is set if the flow began with an answer to packets that met no rule.
	reversed bool
}

// newSweep takes the pending work of a table. run returns what it does not complete.
func newSweep(t *table, k kernel, family service.Family, answering service.NodePortAddresses, astray map[destination]service.Key) *sweep {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := &sweep{table: t, todo: t.todo, kernel: k, answering: answering, began: time.Now(), astray: astray, result: Swept{Family: family}}
	t.todo = newTodo()
	return s
}

// run sweeps. If it fails, the part of the work that succeeded is complete.
func (s *sweep) run(ctx context.Context) error {
	defer s.end()
	if err := s.prepare(); err != nil {
		return err
	}
	for _, only := range s.questions() {
		honoured, err := s.list(ctx, only)
		if err != nil {
			return err
		}
		if s.refusal != nil {
			return fmt.Errorf("cannot delete %d stale flows: %w", s.refused, s.refusal)
		}
		if !honoured { // the kernel listed all flows
			s.todo.done(filter{})
			return nil
		}
		if !only.Source { // filters for the same destinations follow a filter by source
			s.todo.done(only)
		}
	}
	return nil
}

// end returns the incomplete work to the table.
func (s *sweep) end() {
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	s.table.todo.restore(s.todo)
	s.result.Cut, s.result.Took = s.table.finish(), time.Since(s.began)
}

// prepare reads the addresses of the host if the sweep needs them.
func (s *sweep) prepare() error {
	if !s.answering.All && !s.todo.all && len(s.todo.checks) == 0 {
		return nil
	}
	addresses, err := s.kernel.Addresses()
	s.host = make(map[netip.Addr]bool, len(addresses))
	for _, a := range addresses {
		s.host[a] = true
	}
	return err
}

// onHost reports whether an address belongs to the host.
func (s *sweep) onHost(a netip.Addr) bool { return s.host[a] || a.IsLoopback() }

// onNode reports whether node ports answer at an address.
func (s *sweep) onNode(a netip.Addr) bool {
	if s.answering.All {
		return s.onHost(a)
	}
	return slices.Contains(s.answering.Addresses, a)
}

// questions returns filters that together match all flows to judge. Filters by source come first. If there would be too
// many filters, it returns one for everything.
func (s *sweep) questions() []filter {
	w, everything := s.todo, []filter{{}}
	if w.all {
		return everything
	}
	if len(w.checks)+len(w.looks) == 0 {
		everything[0].Protocol = unix.IPPROTO_UDP
	}
	var sources, all []filter
	add := func(d destination, sends bool) (few bool) {
		s.steps++
		covers := func(f filter) bool { return f.Covers(d) }
		if !slices.ContainsFunc(all, covers) {
			all = append(all, conntrack.FilterFor(d))
		}
		if sends && d.Addr.IsValid() && !slices.ContainsFunc(sources, covers) {
			sources = append(sources, conntrack.FilterFor(d).BySource())
		}
		return len(sources)+len(all) <= filtersMax
	}
	for d := range w.looks {
		if !add(d, false) {
			return everything
		}
	}
	for d := range w.checks {
		if !add(d, true) {
			return everything
		}
	}
	for d := range w.flows {
		if !add(d, false) {
			return everything
		}
	}
	return append(sources, all...)
}

// list examines the flows that a filter matches, and reports whether the kernel honoured the filter. It starts again if
// the list is interrupted. Deleted flows do not occur again.
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

// examine judges one flow, and deletes it in a batch if it is stale.
func (s *sweep) examine(f *flow) error {
	s.result.Flows++
	why, stale := s.judge(f)
	if !stale {
		return nil
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

// flush deletes the stale flows.
func (s *sweep) flush() error {
	if len(s.stale) == 0 {
		return nil
	}
	outcomes, err := s.kernel.Delete(s.stale)
	s.count(outcomes)
	s.stale, s.blame, s.space = s.stale[:0], s.blame[:0], s.space[:0]
	return err
}

// count counts the deleted flows.
func (s *sweep) count(outcomes []error) {
	s.table.mu.Lock() // for the leavers
	defer s.table.mu.Unlock()
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
}

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
	// filtersMax is the number of pending frontends up to which the sweep lists the flows
	// of each by itself. Each such list makes the kernel walk its whole table, which costs
	// about a sixth of listing every flow (60 and 380 ms at 200,000 flows, Linux 6.18).
	filtersMax = 5
	// removeBatch is the number of flows that one request deletes.
	removeBatch = 128
)

type filter = conntrack.Filter

// kernel is what a sweep needs of the kernel. node is the real one.
type kernel interface {
	// Each, Delete and Close are those of conntrack.Kernel.
	Each(ctx context.Context, only filter, each func(*flow) error) (honoured bool, err error)
	Delete(entries []conntrack.Description) ([]error, error)
	Close() error
	// Addresses lists the addresses of the host.
	Addresses() ([]netip.Addr, error)
}

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

// sweep does once what a table has to do. It holds at most removeBatch flows, however many there are.
type sweep struct {
	table  *table
	todo   *todo
	kernel kernel
	// answering says where node ports answer, and owned reports whether a Service has a destination, as far as the API
	// says; nil if that is not known.
	answering service.NodePortAddresses
	owned     func(destination) bool
	// host are the addresses of the host, if they matter.
	host map[netip.Addr]bool
	// began is the time of the sweep.
	began time.Time
	// stale are identities of flows to delete, and blame says whose change made each stale.
	stale []conntrack.Description
	blame []blame
	// space is what stale points into.
	space []byte
	// astray are the destinations at which flows of clients that met no rule were found, each with its Service, and pressed
	// identifies flows of answers; see again.
	astray  map[destination]service.Key
	pressed []conntrack.Description
	// refused counts the flows that the kernel did not delete, and refusal is the reason
	// for the last one.
	refused int
	refusal error
	// steps counts what was visited to choose filters; see table.
	steps int

	result Swept
}

// blame is why a flow is stale: a Service's change, and the endpoint that has left if its deadline is the reason.
type blame struct {
	by     service.Key
	leaver *leaver
	// reversed is set if the flow consists of answers to packets that met no rule.
	reversed bool
}

// newSweep takes what a table has to do. What a run does not do, it gives back.
func newSweep(t *table, k kernel, family service.Family, answering service.NodePortAddresses, astray map[destination]service.Key) *sweep {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := &sweep{table: t, todo: t.todo, kernel: k, answering: answering, began: time.Now(), astray: astray, result: Swept{Family: family}}
	t.todo = newTodo()
	return s
}

// run sweeps. What is clean is done, even if the rest fails.
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
		if !honoured { // the kernel listed every flow
			s.todo.done(filter{})
			return nil
		}
		if !only.Source { // otherwise the same destinations follow
			s.todo.done(only)
		}
	}
	return nil
}

// end gives back what is not done.
func (s *sweep) end() {
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	s.table.todo.restore(s.todo)
	s.result.Cut, s.result.Took = s.table.finish(), time.Since(s.began)
}

// prepare reads the addresses of the host if they matter.
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

// onHost reports whether an address is one of the host's.
func (s *sweep) onHost(a netip.Addr) bool { return s.host[a] || a.IsLoopback() }

// onNode reports whether node ports answer at an address.
func (s *sweep) onNode(a netip.Addr) bool {
	if s.answering.All {
		return s.onHost(a)
	}
	return slices.Contains(s.answering.Addresses, a)
}

// questions returns filters that together let all flows through that are to be judged, those by source first. It stops
// as soon as there are too many.
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

// examine judges one flow, and deletes it with others if it is stale.
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

// count takes note of what was deleted.
func (s *sweep) count(outcomes []error) {
	s.table.mu.Lock() // the leavers belong to it
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
